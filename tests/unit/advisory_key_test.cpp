#include "base/sha256.hpp"
#include "support/failure.hpp"
#include "transaction/advisory/advisory_protocol.hpp"
#include <rowlock/advisory_lock.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>

using namespace rowlock;
using detail::call_of;
using support::kind_of;

namespace {

std::string hex(std::string_view text) {
    std::string digits;
    for (const unsigned char each : sha256(text)) {
        digits += "0123456789abcdef"[each >> 4];
        digits += "0123456789abcdef"[each & 15];
    }
    return digits;
}

detail::server_key server_key_of(const advisory_key& key, sql::dialect speaks) {
    return detail::make_advisory_protocol(speaks)->key_of(key, "rowlock", "shop");
}

}  // namespace

TEST_CASE("SHA-256 gives the digests of FIPS 180-4") {
    CHECK(hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(hex("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmn"
              "opqr"
              "lmnopqrsmnopqrstnopqrstu") ==
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    CHECK(hex(std::string(1'000'000, 'a')) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    // The lengths around which the length field needs another block.
    CHECK(hex(std::string(55, 'a')) ==
          "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    CHECK(hex(std::string(56, 'a')) ==
          "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    CHECK(hex(std::string(64, 'a')) ==
          "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST_CASE("names have the advisory keys that docs/advisory-keys.md says") {
    CHECK(advisory_number("report") == 510809650114533943);
    CHECK(advisory_number("nightly-report") == -954865685126077536);
    CHECK(advisory_number("report", "shop") == 8664839197135247612);
    CHECK(advisory_number("größe ☾") == -3541731565756817562);
    CHECK(advisory_text("report", "shop") == "rowlock_l26r4mzwehfgbcipz32rv37vkgl5cz6cqatj5k46");
    CHECK(advisory_text("nightly-report", "shop") ==
          "rowlock_z3dbnkyftnp3q3gi7sm6bjk75gb3b23jitvhqwtt");
    CHECK(advisory_text("report", "shop", "shop") ==
          "rowlock_rye7agbtqegbpghpuu2h6fwgn2debim7ponslf7k");
    CHECK(advisory_text("größe ☾", "shop") == "rowlock_laziywy2ffjjpjakjhrqdc3kvxe6xlwdpumhell2");
    CHECK(advisory_text("report", "") == "rowlock_h2g657m5pnplvjhzy6mm26hhzggl7pfsvpnshmoj");
    CHECK(advisory_text("report", "shop").size() == 48);
}

TEST_CASE("names that would make the mapping ambiguous are refused") {
    CHECK(kind_of([] { static_cast<void>(advisory_key{"a\nb"}); }) == errc::invalid_name);
    CHECK(kind_of([] { static_cast<void>(advisory_key{""}); }) == errc::invalid_name);
    CHECK(kind_of([] { static_cast<void>(advisory_number("a", "b\nc")); }) ==
          errc::invalid_options);
    CHECK(kind_of([] { static_cast<void>(advisory_number("a", "")); }) == errc::invalid_options);
    CHECK(kind_of([] { static_cast<void>(advisory_text("a", "b\nc")); }) == errc::invalid_options);
    for (const char* each : {"", "a\tb", "ö"}) {
        CHECK(kind_of([&] { static_cast<void>(advisory_key::verbatim(each)); }) ==
              errc::invalid_name);
    }
    CHECK(kind_of([] { static_cast<void>(advisory_key::verbatim(std::string(65, 'a'))); }) ==
          errc::invalid_name);
}

TEST_CASE("a key of the other database's kind is refused") {
    constexpr auto postgresql = sql::dialect::postgresql;
    constexpr auto mysql = sql::dialect::mysql;
    const auto kind = [](const advisory_key& key, sql::dialect speaks) {
        return kind_of([&] { static_cast<void>(server_key_of(key, speaks)); });
    };
    CHECK(kind(advisory_key::number(1), mysql) == errc::unsupported);
    CHECK(kind(advisory_key::pair(1, 2), mysql) == errc::unsupported);
    CHECK(kind(advisory_key::verbatim("job"), postgresql) == errc::unsupported);
    CHECK(kind(advisory_key::number(1), postgresql) == errc{});
    CHECK(kind(advisory_key::verbatim("job"), mysql) == errc{});
}

TEST_CASE("keys that the server treats as one lock are one key in the process") {
    const auto identity = [](const advisory_key& key, sql::dialect speaks) {
        return server_key_of(key, speaks).identity();
    };
    constexpr auto postgresql = sql::dialect::postgresql;
    constexpr auto mysql = sql::dialect::mysql;
    CHECK(identity("report", postgresql) ==
          identity(advisory_key::number(advisory_number("report")), postgresql));
    CHECK(identity(advisory_key::number(1), postgresql) !=
          identity(advisory_key::pair(0, 1), postgresql));
    CHECK(identity(advisory_key::verbatim("Job"), mysql) ==
          identity(advisory_key::verbatim("jOB"), mysql));
    CHECK(identity("report", mysql) ==
          identity(advisory_key::verbatim(advisory_text("report", "shop")), mysql));
}

TEST_CASE("the smallest and greatest keys can be written in a statement") {
    const auto call = [](const advisory_key& key) {
        return call_of("pg_advisory_lock", detail::postgresql_key(key, "rowlock"),
                       advisory_mode::exclusive);
    };
    CHECK(call(advisory_key::number(std::numeric_limits<std::int64_t>::min())) ==
          "pg_catalog.pg_advisory_lock(cast(''-9223372036854775808'' as bigint))");
    CHECK(call(advisory_key::pair(-2147483647 - 1, -1)) ==
          "pg_catalog.pg_advisory_lock(cast(''-2147483648'' as int), cast(''-1'' as int))");
}
