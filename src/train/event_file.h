// What TensorBoard draws: a file of events, each a number of one step (tensorflow/core/util/event.proto in the frames
// of tensorflow/core/lib/io/record_writer.h).
//
//   ASSIGN_OR_RETURN(EventFile events, EventFile::open("runs/1"));
//   RETURN_IF_ERROR(events.add("loss", 20, 0.31));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/result.h"

namespace nlsplit::inline train {

class EventFile {
 public:
  // A new file in DIR, which is made if it is not there: TensorBoard joins the files of a folder. Errors name it.
  static Result<EventFile> open(const std::string& dir);
  // At once on disk: whoever watches sees it, and a run that dies loses none.
  Status add(std::string_view tag, int64_t step, double value);

 private:
  EventFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Status write(std::string_view event);

  std::string path_;
  Descriptor file_;
};

// For tests: the frame of an event's bytes.
std::string event_frame(std::string_view event);

}  // namespace nlsplit::inline train
