// What the public headers accept and refuse at compile time, and what they write to a stream.

#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <locale>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <type_traits>

using namespace rowlock;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

template <typename Client>
concept takes_braces_as_options = requires(Client locks, steady_clock::time_point moment) {
    { locks.acquire("job", {}) } -> std::same_as<lease>;
    { locks.try_acquire("job", {}) } -> std::same_as<std::optional<lease>>;
    { locks.try_acquire_for("job", seconds{1}, {}) } -> std::same_as<std::optional<lease>>;
    { locks.try_acquire_until("job", moment, {}) } -> std::same_as<std::optional<lease>>;
    { locks.acquire("job", {.note = "a note"}) } -> std::same_as<lease>;
};
static_assert(takes_braces_as_options<client>);

template <typename Client>
concept takes_stops = requires(Client locks, const std::stop_token stop, std::stop_source from,
                               steady_clock::time_point moment, acquire_options options) {
    { locks.acquire("job", stop) } -> std::same_as<std::optional<lease>>;
    { locks.acquire("job", from.get_token(), {}) } -> std::same_as<std::optional<lease>>;
    { locks.acquire("job", stop, options) } -> std::same_as<std::optional<lease>>;
    { locks.try_acquire_for("job", seconds{1}, stop) } -> std::same_as<std::optional<lease>>;
    { locks.try_acquire_for("job", seconds{1}, stop, {}) } -> std::same_as<std::optional<lease>>;
    { locks.try_acquire_until("job", moment, stop) } -> std::same_as<std::optional<lease>>;
    { locks.try_acquire_until("job", moment, stop, {}) } -> std::same_as<std::optional<lease>>;
};
static_assert(takes_stops<client>);

/// Whether a call compiles with a name of this type.
template <typename Client, typename Name>
concept acquires_by = requires(Client locks, Name name) {
    locks.acquire(name);
};
static_assert(acquires_by<client, const char*>);
static_assert(acquires_by<client, std::string>);
static_assert(acquires_by<client, lock_name>);
static_assert(!acquires_by<client, std::nullptr_t>);
static_assert(!acquires_by<client, int>);

template <typename Client, typename Key>
concept locks_by = requires(Client locks, Key key) {
    { locks.lock(key) } -> std::same_as<advisory_lock>;
    { locks.lock(key, {}) } -> std::same_as<std::optional<advisory_lock>>;
    { locks.try_lock_for(key, seconds{1}, {}) } -> std::same_as<std::optional<advisory_lock>>;
};
static_assert(locks_by<advisory_client, const char*>);
static_assert(locks_by<advisory_client, std::string>);
static_assert(locks_by<advisory_client, advisory_key>);
static_assert(!locks_by<advisory_client, std::nullptr_t>);
static_assert(!locks_by<advisory_client, int>);

static_assert(std::is_convertible_v<const char*, version_column>);
static_assert(!std::is_constructible_v<version_column, std::nullptr_t>);

template <typename Value>
std::string written(const Value& value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

/// Groups digits in threes.
class grouping : public std::numpunct<char> {
    [[nodiscard]] char do_thousands_sep() const override { return '.'; }
    [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE("what to_string() names, a stream writes") {
    CHECK(written(errc::timed_out) == "timed_out");
    CHECK(written(fencing_token{42}) == "42");
    CHECK(written(loss_reason::forced_release) == to_string(loss_reason::forced_release));
    CHECK(written(event_kind::lease_lost) == to_string(event_kind::lease_lost));
    CHECK(written(row_session_ending::rolled_back) == to_string(row_session_ending::rolled_back));
    CHECK(written(fenced_write::refused) == to_string(fenced_write::refused));
    CHECK(written(history_kind::granted) == to_string(history_kind::granted));
    CHECK(written(sql::dialect::mysql) == "mysql");
    CHECK(written(reap_report{.sessions_ended = 1}) == to_string(reap_report{.sessions_ended = 1}));
}

TEST_CASE("a fencing token is written without the separators of a locale") {
    std::ostringstream out;
    out.imbue(std::locale{out.getloc(), new grouping});  // the locale owns it
    out << 1234567 << ' ' << fencing_token{1234567};
    CHECK(out.str() == "1.234.567 1234567");
}
