// Texts that end what a model writes, and are no part of it.
//
//   StopStrings stop({"\n\n", "User:"});
//   std::string shown = stop.next(text);   // for each piece of text as it comes
//   if (stop.found()) …                    // nothing comes any more
//   shown += stop.finish();
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nlsplit::inline text {

class StopStrings {
 public:
  // Those that are empty never stop anything.
  explicit StopStrings(std::vector<std::string> stops = {});

  // What cannot be a part of a stop string any more. The earliest stop string counts; of several that begin at one
  // place any, since what is shown ends there.
  std::string next(std::string_view text);
  // What was held back, when the text has ended otherwise.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_back_;
  bool found_ = false;
};

}  // namespace nlsplit::inline text
