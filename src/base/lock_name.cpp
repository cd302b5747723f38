#include "base/utf8.hpp"
#include <rowlock/error.hpp>
#include <rowlock/lock_name.hpp>

namespace rowlock {

lock_name::lock_name(std::string_view text) {
    if (text.empty()) {
        throw error{errc::invalid_name, "a lock name may not be empty"};
    }
    if (text.size() > max_bytes) {
        throw error{errc::invalid_name, "a lock name may have at most 255 bytes; this one has " +
                                            std::to_string(text.size()) +
                                            ": shorten it, or use a hash of it"};
    }
    switch (utf8::check(text)) {
        case utf8::verdict::malformed:
            throw error{errc::invalid_name, "a lock name must be valid UTF-8"};
        case utf8::verdict::control:
            throw error{errc::invalid_name, "a lock name may not contain control characters"};
        case utf8::verdict::clean:
            break;
    }
    text_ = text;
}

}  // namespace rowlock
