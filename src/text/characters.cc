#include "text/characters.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "base/check.h"

namespace nlsplit::inline text {
namespace {

const icu::Normalizer2& normalizer_of(NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* found = form == NormalForm::nfc    ? icu::Normalizer2::getNFCInstance(error)
                                  : form == NormalForm::nfd  ? icu::Normalizer2::getNFDInstance(error)
                                  : form == NormalForm::nfkc ? icu::Normalizer2::getNFKCInstance(error)
                                                             : icu::Normalizer2::getNFKDInstance(error);
  CHECK(U_SUCCESS(error) && found != nullptr, u_errorName(error));
  return *found;
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  UErrorCode error = U_ZERO_ERROR;
  std::string made;
  icu::StringByteSink<std::string> sink(&made);
  normalizer_of(form).normalizeUTF8(0, piece, sink, nullptr, error);
  CHECK(U_SUCCESS(error), u_errorName(error));
  return made;
}

bool is_white_space(char32_t character) { return u_isUWhiteSpace(static_cast<UChar32>(character)); }

}  // namespace nlsplit::inline text
