// A text is the name of a lock exactly if the rules allow it, is kept byte by byte, and is never
// repeated in an error.

#include "fuzz/reference.hpp"
#include "fuzz/target.hpp"
#include <rowlock/error.hpp>
#include <rowlock/lock_name.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text = fuzz::input{data, size}.all();
    const bool may_be = !text.empty() && text.size() <= rowlock::lock_name::max_bytes &&
                        fuzz::is_utf8(text) && !fuzz::has_control(text);
    try {
        const rowlock::lock_name name{text};
        fuzz::require(may_be, "what breaks the rules is not a name", text);
        fuzz::require(name.str() == text, "a name is kept as it was given", text);
    } catch (const rowlock::error& refused) {
        fuzz::require(!may_be, "what keeps to the rules is a name", text);
        fuzz::require(refused.kind() == rowlock::errc::invalid_name, "invalid_name", text);
        fuzz::require_no_secret(refused.what());
    }
    return 0;
}
