// Loops to machine code, by LLVM's usual passes and its just-in-time linker.
#include <fmt/format.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "base/build_of.h"
#include "kernels/generated/encode.h"
#include "kernels/generated/llvm/emit.h"

namespace nlsplit::inline kernels {
namespace {

constexpr const char* function_name = "generated";

std::string text_of(llvm::Error error) { return llvm::toString(std::move(error)); }

llvm::orc::JITTargetMachineBuilder machine_of(Isa isa) {
  static const bool ready = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)ready;
  llvm::orc::JITTargetMachineBuilder machine((llvm::Triple(llvm::sys::getProcessTriple())));
  // As GCC is told for the hand-made kernels: the level and no more, and a multiply-add only where one is written.
  machine.setCPU(isa == Isa::neon ? "generic" : std::string("x86-64-") + std::string(name_of(isa)));
  machine.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
  // What the linker of objects in memory takes, at any address.
  machine.setRelocationModel(llvm::Reloc::PIC_);
  machine.setCodeModel(llvm::CodeModel::Small);
  machine.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
  return machine;
}

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PipelineTuningOptions options;
  options.LoopVectorization = options.SLPVectorization = true;
  llvm::PassBuilder builder(&machine, options);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

// The loops as IR that is optimised for the level.
Result<std::unique_ptr<llvm::Module>> module_of(const Loops& loops, Isa isa, llvm::LLVMContext& context,
                                                llvm::TargetMachine& machine) {
  auto module = std::make_unique<llvm::Module>(function_name, context);
  module->setTargetTriple(machine.getTargetTriple().str());
  module->setDataLayout(machine.createDataLayout());
  emit(loops, function_name, *module);
  for (llvm::Function& function : *module) {
    if (isa == Isa::v4) function.addFnAttr("prefer-vector-width", "512");
  }
  std::string what;
  llvm::raw_string_ostream out(what);
  if (llvm::verifyModule(*module, &out)) return invalid_input(fmt::format("loops that make no IR: {}", what));
  optimise(*module, machine);
  return module;
}

// Everything but the loops that decides the code: this module, LLVM's library, and what it compiles for. Empty: they
// cannot be told apart from others.
std::string origin_of(const llvm::TargetMachine& machine) {
  const std::string own = build_of(reinterpret_cast<const void*>(&emit));
  const std::string library = build_of(reinterpret_cast<const void*>(&llvm::sys::getProcessTriple));
  if (own.empty() || library.empty()) return "";
  return fmt::format("{}\n{}\n{} {} {}\n", own, library, machine.getTargetTriple().str(), machine.getTargetCPU().str(),
                     machine.getTargetFeatureString().str());
}

class Jit {
 public:
  explicit Jit(Isa isa) : isa_(isa) {}

  Result<CompiledLoops> compile(const Loops& loops, CodeCache* cache) {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(start());
    if (origin_.empty()) cache = nullptr;
    const std::string key = cache == nullptr ? "" : origin_ + encode(loops);
    if (cache != nullptr) {
      if (const auto object = cache->find(key)) {
        // One that cannot be linked is made anew.
        if (const auto function = link(*object)) return CompiledLoops{*function, true};
      }
    }
    ASSIGN_OR_RETURN(const std::string object, object_of(loops));
    ASSIGN_OR_RETURN(const LoopFunction function, link(object));
    if (cache != nullptr) cache->keep(key, object);
    return CompiledLoops{function, false};
  }

 private:
  Status start() {
    if (jit_) return ok_status();
    auto machine = machine_of(isa_).createTargetMachine();
    if (!machine) return unsupported(text_of(machine.takeError()));
    auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(machine_of(isa_)).create();
    if (!jit) return unsupported(text_of(jit.takeError()));
    machine_ = std::move(*machine);
    origin_ = origin_of(*machine_);
    jit_ = std::move(*jit);
    return ok_status();
  }

  // LLVM's own cache (llvm::ObjectCache) is asked once there is optimised IR, which takes most of the time.
  Result<std::string> object_of(const Loops& loops) {
    llvm::LLVMContext context;
    ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> module, module_of(loops, isa_, context, *machine_));
    auto object = llvm::orc::SimpleCompiler(*machine_)(*module);
    if (!object) return invalid_input(text_of(object.takeError()));
    return (*object)->getBuffer().str();
  }

  // In a library of its own, as all objects define the same name.
  Result<LoopFunction> link(const std::string& object) {
    auto library = jit_->createJITDylib(fmt::format("{}", linked_++));
    if (!library) return unsupported(text_of(library.takeError()));
    if (llvm::Error error = jit_->addObjectFile(*library, llvm::MemoryBuffer::getMemBufferCopy(object)))
      return invalid_input(text_of(std::move(error)));
    auto address = jit_->lookup(*library, function_name);
    if (!address) return invalid_input(text_of(address.takeError()));
    return address->toPtr<LoopFunction>();
  }

  const Isa isa_;
  std::mutex mutex_;
  int linked_ = 0;
  std::string origin_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::unique_ptr<llvm::orc::LLJIT> jit_;
};

// They stay until the process ends, as the code that they hold does.
Jit& jit_of(Isa isa) {
  static const auto* const all =
      new std::array<Jit*, 4>{new Jit(Isa::v2), new Jit(Isa::v3), new Jit(Isa::v4), new Jit(Isa::neon)};
  return *(*all)[static_cast<size_t>(isa)];
}

Result<CompiledLoops> compile(const Loops& loops, Isa isa, CodeCache* cache) {
  if (is_gpu(isa)) return unsupported("loops are compiled for CPUs");
  return jit_of(isa).compile(loops, cache);
}

CodeCache* user_cache() {
  static CodeCache* const cache = open_user_cache().release();
  return cache;
}

Result<LoopListing> list(const Loops& loops, Isa isa) {
  if (is_gpu(isa)) return unsupported("loops are compiled for CPUs");
  auto machine = machine_of(isa).createTargetMachine();
  if (!machine) return unsupported(text_of(machine.takeError()));
  llvm::LLVMContext context;
  ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> module, module_of(loops, isa, context, **machine));
  LoopListing listing;
  llvm::raw_string_ostream ir(listing.llvm);
  module->print(ir, nullptr);
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream assembly(bytes);
  llvm::legacy::PassManager passes;
  if ((*machine)->addPassesToEmitFile(passes, assembly, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return unsupported("this target writes no assembly");
  passes.run(*module);
  listing.assembly = std::string(bytes.str());
  return listing;
}

}  // namespace
}  // namespace nlsplit::inline kernels

extern "C" __attribute__((visibility("default"))) const nlsplit::CodegenModule* nlsplit_codegen_module() {
  static const nlsplit::CodegenModule module = {
      .compile = nlsplit::compile, .user_cache = nlsplit::user_cache, .list = nlsplit::list};
  return &module;
}
