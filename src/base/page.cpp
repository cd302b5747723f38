#include "base/page.hpp"

#include "base/require.hpp"
#include "base/utf8.hpp"

namespace rowlock::detail {

void validate(std::string_view prefix, const page& page) {
    require(utf8::is_text(prefix, 255) && utf8::is_text(page.after, 255),
            "a prefix must be UTF-8 of at most 255 bytes without NUL");
    require(page.limit >= 1 && page.limit <= 10'000, "a page's limit must be from 1 to 10000");
}

}  // namespace rowlock::detail
