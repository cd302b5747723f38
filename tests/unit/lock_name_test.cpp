#include <rowlock/error.hpp>
#include <rowlock/lock_name.hpp>

#include <doctest/doctest.h>

#include <string>

using rowlock::errc;
using rowlock::lock_name;

namespace {

bool refused(const std::string& text) {
    try {
        const lock_name name{text};
    } catch (const rowlock::error& failure) {
        // The text may be hostile or secret, so the error must not repeat it.
        const bool quoted =
            !text.empty() && std::string{failure.what()}.find(text) != std::string::npos;
        return failure.kind() == errc::invalid_name && !quoted;
    }
    return false;
}

}  // namespace

TEST_CASE("a lock name is 1 to 255 bytes of UTF-8") {
    CHECK(lock_name{"job"}.str() == "job");
    CHECK(lock_name{std::string(255, 'x')}.str().size() == 255);
    CHECK(lock_name{"\xF0\x9F\x8C\x99"}.str().size() == 4);
    CHECK(refused(""));
    CHECK(refused(std::string(256, 'x')));
}

TEST_CASE("malformed UTF-8 is refused as a lock name") {
    CHECK(refused("\xC3\x28"));          // continuation missing
    CHECK(refused("\xC0\x80"));          // overlong
    CHECK(refused("\xE0\x80\xAF"));      // overlong
    CHECK(refused("\xED\xA0\x80"));      // surrogate
    CHECK(refused("\xF4\x90\x80\x80"));  // beyond U+10FFFF
    CHECK(refused("\xF8\x88\x80\x80\x80"));
    CHECK(refused("truncated \xE2\x98"));
    CHECK(refused("\x80"));
}

TEST_CASE("control characters are refused in a lock name") {
    CHECK(refused(std::string{"a\0b", 3}));
    CHECK(refused("a\nb"));
    CHECK(refused("\x1b[31mred"));
    CHECK(refused("del\x7f"));
    CHECK(refused("c1 \xC2\x9B"));
    CHECK(refused("\xF4\x8F\xBF\xBF"));  // the upper end of client::list's ranges
    CHECK_FALSE(refused("a b"));
    CHECK_FALSE(refused("\xC2\xA0"));
}
