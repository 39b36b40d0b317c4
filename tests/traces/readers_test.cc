// What readers make of profiles. Those of GPUs are written here by their documentation.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>
#include <vector>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"
#include "traces/trace.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string traces = NLS_SOURCE_DIR "/tests/tools/traces/";

std::vector<std::string> names(const ProfiledRun& run) {
  std::vector<std::string> all;
  for (const OperatorTime& event : run.events) all.push_back(event.name);
  return all;
}

template <class T>
std::string error(const Result<T>& result) {
  return result.ok() ? "no error" : result.error().to_string();
}

TEST(OrtTrace, NamesWithoutWhatOnnxRuntimeAdds) {
  const Scratch scratch;
  std::string events;
  for (const std::string name : {"a_nchwc", "b/MatMulAddFusion", "c/MatMulScaleFusion/", "d_token_12"}) {
    events += fmt::format(
        R"({{"cat":"Node","ph":"X","tid":1,"ts":{},"dur":1,"name":"{}_kernel_time","args":{{"op_name":"FusedConv"}}}},)",
        events.size(), name);
  }
  const OperatorTrace trace = value_of(read_ort_trace(
      scratch.write("t.json", "[" + events + R"({"cat":"Session","ph":"X","ts":0,"dur":1000,"name":"model_run"}])")));
  ASSERT_EQ(trace.runs.size(), 1U);
  std::vector<std::string> last;
  for (const OperatorTime& event : trace.runs[0].events) last.push_back(event.nodes.back());
  EXPECT_THAT(last, ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(trace.runs[0].events[0].kinds, ElementsAre("Conv"));
}

TEST(TorchTrace, TakesTheOutermostOperatorsOfEachRange) {
  const OperatorTrace trace = value_of(read_torch_trace(traces + "torch_resnet18.json", ""));
  EXPECT_EQ(trace.runtime, "PyTorch, CPU");
  ASSERT_EQ(trace.runs.size(), 5U);
  for (const ProfiledRun& run : trace.runs) {
    ASSERT_EQ(run.events.size(), 20U + 20 + 17 + 8 + 4);  // convolutions, norms, relus, additions, pools and the rest
    EXPECT_EQ(run.events[0].name, "aten::conv2d");
    EXPECT_THAT(run.events[0].kinds, ElementsAre("Conv"));
    EXPECT_EQ(run.events[0].inputs[1], (Shape{64, 3, 7, 7}));
    EXPECT_EQ(run.events[2].op, "relu");
    double sum = 0;
    for (const OperatorTime& event : run.events) sum += event.seconds;
    EXPECT_GT(sum, 0.9 * run.seconds);
    EXPECT_LT(sum, run.seconds);
  }
}

std::string event(const std::string& category, const std::string& name, int start, int duration,
                  const std::string& arguments = {}) {
  return fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","tid":1,"ts":{},"dur":{},"args":{{{}}}}},)", category, name,
                     start, duration, arguments);
}
std::string list(const std::string& events) { return "[" + events + R"({"ph":"M"}])"; }

TEST(TorchTrace, OnAGpuKernelsCountForTheOperatorThatLaunchedThem) {
  const Scratch scratch;
  const std::string shapes = R"("Input Dims":[[1,8],[8,8]])";
  std::string events;
  for (const int run : {0, 1000}) {
    events += event("user_annotation", "step#" + std::to_string(run), run, 100);
    events += event("user_annotation", "first", run + 1, 40);
    events += event("cpu_op", "aten::linear", run + 10, 20, shapes);
    events += event("cpu_op", "aten::addmm", run + 11, 15, shapes);
    events += event("cuda_runtime", "cudaLaunchKernel", run + 12, 2, fmt::format(R"("correlation":{})", run + 1));
    events += event("cuda_runtime", "cudaLaunchKernel", run + 15, 2, fmt::format(R"("correlation":{})", run + 2));
    events += event("cpu_op", "aten::relu", run + 50, 20, shapes);
    events += event("cuda_runtime", "cudaLaunchKernel", run + 55, 2, fmt::format(R"("correlation":{})", run + 3));
    events += event("kernel", "gemm", run + 200, 30, fmt::format(R"("correlation":{})", run + 1));
    events += event("kernel", "bias", run + 235, 5, fmt::format(R"("correlation":{})", run + 2));
    events += event("kernel", "relu", run + 245, 7, fmt::format(R"("correlation":{})", run + 3));
  }
  const OperatorTrace trace = value_of(read_torch_trace(scratch.write("t.json", list(events)), ""));
  EXPECT_EQ(trace.runtime, "PyTorch, GPU");
  ASSERT_EQ(trace.runs.size(), 2U);
  EXPECT_THAT(names(trace.runs[1]), ElementsAre("aten::linear", "aten::relu"));
  EXPECT_NEAR(trace.runs[1].events[0].seconds, 35e-6, 1e-9);
  EXPECT_NEAR(trace.runs[1].events[1].seconds, 7e-6, 1e-9);
  EXPECT_NEAR(trace.runs[1].seconds, 52e-6, 1e-9);
  EXPECT_THAT(trace.runs[1].events[0].nodes, ElementsAre("first"));
  EXPECT_THAT(trace.runs[1].events[1].nodes, IsEmpty());
}

TEST(TorchTrace, RangesAreChosenByName) {
  const Scratch scratch;
  const std::string shapes = R"("Input Dims":[[1,8]])", relu = event("cpu_op", "aten::relu", 20, 10, shapes);
  const auto read = [&](const std::string& events, const std::string& range) {
    return read_torch_trace(scratch.write("t.json", list(events)), range);
  };
  const std::string all = event("user_annotation", "all", 0, 1000) + event("user_annotation", "run", 10, 50) +
                          event("user_annotation", "run", 100, 50) + relu +
                          event("cpu_op", "aten::relu", 110, 10, shapes);
  EXPECT_EQ(value_of(read(all, "")).runs.size(), 1U);
  EXPECT_EQ(value_of(read(all, "run")).runs.size(), 2U);
  EXPECT_THAT(error(read(all, "step")), HasSubstr("t.json: no operator is in a range called 'step'"));
  EXPECT_THAT(error(read(event("user_annotation", "a", 10, 30) + event("user_annotation", "b", 50, 30) + relu +
                             event("cpu_op", "aten::relu", 55, 5, shapes),
                         "")),
              HasSubstr("ranges called 'a' and 'b': say with --range NAME"));
  EXPECT_EQ(value_of(read(event("python_function", "nn.Module: Net_0", 10, 30) + relu, "")).runs.size(), 1U);
}

TEST(TorchTrace, RefusesWhatSaysTooLittle) {
  const Scratch scratch;
  const auto read = [&](const std::string& events) {
    return error(read_torch_trace(scratch.write("t.json", list(events)), ""));
  };
  EXPECT_THAT(read(""), HasSubstr("no event of the category \"cpu_op\""));
  EXPECT_THAT(read(event("cpu_op", "aten::relu", 0, 1)), HasSubstr("record_shapes=True"));
  EXPECT_THAT(read(event("cpu_op", "aten::relu", 0, 1, R"("Input Dims":[[1]])")), HasSubstr("record_function"));
}

class NsysTrace : public ::testing::Test {
 protected:
  void run(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
    sqlite3_close(database);
  }
  void make_tables() {
    run("CREATE TABLE StringIds (id INTEGER, value TEXT);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId "
        "INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId "
        "INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, globalPid INTEGER, correlationId "
        "INTEGER, "
        "shortName INTEGER);"
        "INSERT INTO StringIds VALUES (1, 'conv'), (2, 'gemm')");
  }
  std::string said(const std::string& range = {}) { return error(read_nsys_trace(path_, range)); }

  static constexpr int64_t process = int64_t{7} << 24, thread = process + 8, other = (int64_t{9} << 24) + 8;
  Scratch scratch_;
  std::string path_ = scratch_ / "t.sqlite";
};

TEST_F(NsysTrace, KernelsBelongToTheRangeOfTheirLaunch) {
  make_tables();
  for (const int64_t run : {0, 10'000}) {
    const auto range = [&](int64_t start, int64_t end, const std::string& text) {
      this->run(fmt::format("INSERT INTO NVTX_EVENTS VALUES ({}, {}, 59, {}, {})", run + start, run + end, text,
                            text.starts_with("NULL") ? fmt::format("{}, 1", thread) : fmt::format("{}, NULL", thread)));
    };
    range(0, 100, "'step'");
    range(10, 40, "NULL");
    range(20, 30, "'cudnn'");
    // The other process has the same correlation.
    this->run(
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({0}, {0}, {1}, {2}), ({3}, {3}, {1}, {4}), "
                    "({5}, {5}, {6}, {2})",
                    run + 25, thread, run + 1, run + 50, run + 2, run + 90, other));
    this->run(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, {}, {}, 2), ({}, {}, {}, {}, 2)",
                          run + 700, run + 900, process, run + 2, run + 200, run + 600, process, run + 1));
  }
  const OperatorTrace trace = value_of(read_nsys_trace(path_, ""));
  ASSERT_EQ(trace.runs.size(), 2U);
  const ProfiledRun& second = trace.runs[1];
  ASSERT_EQ(second.events.size(), 2U);
  EXPECT_THAT(second.events[0].nodes, ElementsAre("cudnn", "conv"));
  EXPECT_THAT(second.events[1].nodes, IsEmpty());
  EXPECT_NEAR(second.events[0].seconds, 400e-9, 1e-12);
  EXPECT_NEAR(second.seconds, 700e-9, 1e-12);
  EXPECT_EQ(value_of(read_nsys_trace(path_, "conv")).runs[0].events.size(), 1U);
}

TEST_F(NsysTrace, SaysWhatIsMissing) {
  EXPECT_THAT(said(), HasSubstr("t.sqlite"));
  scratch_.write("t.sqlite", "no database");
  EXPECT_THAT(said(), HasSubstr("this is no SQLite database: export a report with nsys export --type sqlite"));
  scratch_.write("t.sqlite", "SQLite format 3 and no more");
  EXPECT_THAT(said(), HasSubstr("this is not a usable SQLite database"));
  scratch_.write("t.sqlite", "");
  std::filesystem::remove(path_);
  run("CREATE TABLE StringIds (id INTEGER, value TEXT)");
  EXPECT_THAT(said(), HasSubstr("no table NVTX_EVENTS"));
  run("CREATE VIEW NVTX_EVENTS AS SELECT 1 AS start");
  EXPECT_THAT(said(), HasSubstr("no table NVTX_EVENTS"));
  run("DROP VIEW NVTX_EVENTS; CREATE TABLE NVTX_EVENTS (start INTEGER)");
  EXPECT_THAT(said(), HasSubstr("table NVTX_EVENTS has no column 'end'"));
  run("DROP TABLE NVTX_EVENTS; DROP TABLE StringIds");
  make_tables();
  EXPECT_THAT(said(), HasSubstr("no kernel with its launch"));
}

TEST(NsysCsv, RangesWithoutOthersInThemAreOperators) {
  const Scratch scratch;
  const std::string path =
      scratch.write("t.csv",
                    "Processing [t.sqlite] with [nvtx_gpu_proj_trace.py]...\n\n"
                    "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration "
                    "(ns),Style,PID,TID,NumGPUOps,Lvl,"
                    "NumChild,RangeId,ParentId,RangeStack\n"
                    ":run,100,60,0,90,PushPop,7,8,2,0,2,1,,:1\n\":a,b\",100,20,5,15,PushPop,7,8,1,1,0,2,1,:1:2\n"
                    ":c,130,25,30,15,PushPop,7,8,1,1,0,3,1,:1:3\nx,130,20,30,15,StartEnd,7,8,1,1,0,3,1,:1:3\n");
  const OperatorTrace trace = value_of(read_nsys_csv(path, ""));
  ASSERT_EQ(trace.runs.size(), 1U);
  EXPECT_THAT(names(trace.runs[0]), ElementsAre("a,b", "c"));
  EXPECT_THAT(trace.runs[0].events[0].nodes, ElementsAre("a,b"));
  EXPECT_NEAR(trace.runs[0].events[1].seconds, 25e-9, 1e-12);
  EXPECT_NEAR(trace.runs[0].seconds, 55e-9, 1e-12);
}

TEST(NsysCsv, ErrorsNameTheirLine) {
  const Scratch scratch;
  const auto said = [&](const std::string& text) { return error(read_nsys_csv(scratch.write("t.csv", text), "")); };
  const std::string head =
      "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration (ns),Style,TID,NumChild\n";
  EXPECT_THAT(said("a,b\n1,2\n"), HasSubstr("no line has the column 'Projected Duration (ns)'"));
  EXPECT_THAT(said("Name,Projected Duration (ns)\n"), HasSubstr("t.csv:1:1: no column 'Projected Start (ns)'"));
  EXPECT_THAT(said(head + ":a,1,2,3\n"), HasSubstr("t.csv:2:1: 4 cells below 8 columns"));
  EXPECT_THAT(said(head + ":a,1,2,3,4,PushPop,8,0\n:a,1,-2,3,4,PushPop,8,0\n"),
              HasSubstr("t.csv:3:1: '-2' is not an integer"));
  EXPECT_THAT(said(head + "\":a,1,2,3,4,PushPop,8,0\n"), HasSubstr("t.csv:2:1: a quoted cell without its end"));
  EXPECT_THAT(said(head), HasSubstr("no operator is in a range"));
}

}  // namespace
}  // namespace nlsplit
