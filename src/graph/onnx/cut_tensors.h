// The bytes of an ONNX file's weights are found, not read: they are cut out of the message before protobuf, which would
// copy them, gets the rest.
//
//   ASSIGN_OR_RETURN(CutModel cut, cut_tensors(file->bytes()));
//   model.ParseFromString(cut.rest);     // a tensor without its raw_data has an entry of external_data instead:
//   cut.ranges[0];                       // key `cut_key`, value the number of its range
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline graph {

struct CutModel {
  struct Range {
    size_t offset = 0, size = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  std::string rest;
  std::vector<Range> ranges;  // of the file, within its bounds
};

inline constexpr std::string_view cut_key = "nlsplit.cut";

// Follows the messages that have tensors (the model's graph, its initializers, its nodes' attributes and their
// subgraphs) and takes out every raw_data of at least `least` bytes; everything else is kept as it is. Only the frame
// of the wire format is understood (https://protobuf.dev/programming-guides/encoding/), so what is kept may still be no
// model. Error: the frame itself is broken, as in a truncated file.
Result<CutModel> cut_tensors(std::string_view file, size_t least = 4096);

}  // namespace nlsplit::inline graph
