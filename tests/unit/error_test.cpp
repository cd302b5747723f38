#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <set>
#include <string>

using rowlock::errc;

TEST_CASE("every kind of error has its own name") {
    std::set<std::string_view> names;
    for (int code = 1; code <= static_cast<int>(errc::database_error); ++code) {
        const auto name = to_string(static_cast<errc>(code));
        CHECK(name != "unknown");
        CHECK(names.insert(name).second);
    }
    CHECK(to_string(errc::timed_out) == "timed_out");
    CHECK(to_string(errc::outcome_unknown) == "outcome_unknown");
    CHECK(to_string(static_cast<errc>(0)) == "unknown");
    CHECK(to_string(static_cast<errc>(static_cast<int>(errc::database_error) + 1)) == "unknown");
}
