#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>

using namespace rowlock;

namespace {

/// Neither a number nor an id of another kind is taken for this id, nor this id for a number.
template <typename Id, typename... Others>
constexpr bool stands_alone = ((!std::convertible_to<Id, Others> &&
                                !std::convertible_to<Others, Id>)&&...);
static_assert(stands_alone<session_id, grant_id, ticket_no, std::int64_t, int, bool>);
static_assert(stands_alone<grant_id, session_id, ticket_no, std::int64_t, int, bool>);
static_assert(stands_alone<ticket_no, session_id, grant_id, std::int64_t, int, bool>);
static_assert(std::is_invocable_v<void (*)(session_id, grant_id), session_id, grant_id>);
static_assert(!std::is_invocable_v<void (*)(session_id, grant_id), grant_id, session_id>);

template <typename Id>
std::string written(Id id) {
    std::ostringstream out;
    out << id;
    return out.str();
}

/// Groups digits in threes.
class grouping : public std::numpunct<char> {
    [[nodiscard]] char do_thousands_sep() const override { return '.'; }
    [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE_TEMPLATE("an id is written as its number, without the separators of a locale", Id,
                   session_id, grant_id, ticket_no) {
    constexpr auto greatest = std::numeric_limits<std::int64_t>::max();
    CHECK(to_string(Id{}) == "0");
    CHECK(to_string(Id{greatest}) == "9223372036854775807");
    CHECK(written(Id{42}) == "42");
    std::ostringstream out;
    out.imbue(std::locale{out.getloc(), new grouping});  // the locale owns it
    out << Id{1234567};
    CHECK(out.str() == "1234567");
}

TEST_CASE_TEMPLATE("an id goes into a statement as its number, and is read from a row", Id,
                   session_id, grant_id, ticket_no) {
    const sql::value parameter = Id{7};
    CHECK(parameter.type() == sql::value::kind::integer);
    CHECK(parameter.integer() == 7);
    CHECK(sql::value{std::optional<Id>{}}.is_null());
    CHECK(sql::value{std::optional{Id{8}}}.integer() == 8);

    sql::result row{2};
    row.append_integer(9);
    row.append_null();
    CHECK(row.integer<Id>(0, 0) == Id{9});
    CHECK(row.maybe_integer<Id>(0, 0) == Id{9});
    CHECK_FALSE(row.maybe_integer<Id>(0, 1));
}
