#include "driver/url.hpp"

#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using rowlock::errc;
using rowlock::driver::parse_parameters;
using rowlock::driver::parse_url;
using rowlock::driver::percent_decoded;

// The message of `call`'s error, which must be an invalid URL.
template <typename Call>
std::string refusal_of(Call call) {
    try {
        call();
    } catch (const rowlock::error& e) {
        CHECK(e.kind() == errc::invalid_url);
        return e.what();
    }
    FAIL_CHECK("nothing was refused");
    return {};
}

std::string refusal_of_url(const std::string& text) {
    return refusal_of([&] { (void)parse_url(text); });
}

}  // namespace

TEST_CASE("a URL is split into its parts") {
    const auto all = parse_url("mysql://ann:pa%20ss@db.example:3307/shop?a=1&b=two");
    CHECK(all.scheme == "mysql");
    CHECK(all.user == "ann");
    CHECK(all.password == "pa ss");
    CHECK(all.host == "db.example");
    CHECK(all.port == 3307);
    CHECK(all.database == "shop");
    REQUIRE(all.parameters.size() == 2);
    CHECK(all.parameters[0].name == "a");
    CHECK(all.parameters[0].value == "1");
    CHECK(all.parameters[1].name == "b");
    CHECK(all.parameters[1].value == "two");
}

TEST_CASE("every part of a URL but the scheme may be missing") {
    const auto bare = parse_url("mysql://");
    CHECK(bare.host.empty());
    CHECK(bare.user.empty());
    CHECK(bare.port == 0);
    CHECK(bare.database.empty());
    CHECK(bare.parameters.empty());
    CHECK(parse_url("mysql://host").host == "host");
    CHECK(parse_url("mysql:///shop").database == "shop");
    CHECK(parse_url("mysql://ann@/shop").user == "ann");
    CHECK(parse_url("mysql://host?a=1").host == "host");
    CHECK(parse_url("mysql://host/?a=1").parameters.size() == 1);
    CHECK(parse_url("mysql://host:/shop").port == 0);
    CHECK(parse_url("mysql://:secret@host/").password == "secret");
}

TEST_CASE("an IPv6 address is written in brackets") {
    const auto with_port = parse_url("mysql://ann@[::1]:3307/shop");
    CHECK(with_port.host == "::1");
    CHECK(with_port.port == 3307);
    CHECK(parse_url("mysql://[fe80::1%25eth0]/shop").host == "fe80::1%eth0");
    refusal_of_url("mysql://[::1/shop");
    refusal_of_url("mysql://[::1]3306/shop");
}

TEST_CASE("a password may contain any character percent-encoded, and a few unencoded") {
    CHECK(parse_url("mysql://ann:%40%3A%2F%3F%23%25@h/x").password == "@:/?#%");
    CHECK(parse_url("mysql://ann:p@ss@h/x").password == "p@ss");
    CHECK(parse_url("mysql://ann:p@ss@h/x").host == "h");
    CHECK(parse_url("mysql://ann:a:b@h/x").password == "a:b");
    CHECK(parse_url("mysql://ann:%c3%A4@h/x").password == "\xc3\xa4");
}

TEST_CASE("the error for an invalid URL does not quote it") {
    for (const std::string text : {"hunter2",
                                   "mysql:/hunter2",
                                   "mysql://ann:hunter2/x@h/shop",
                                   "mysql://h:hunter2/shop",
                                   "mysql://h:0/shop",
                                   "mysql://h:65536/shop",
                                   "mysql://h:-1/shop",
                                   "mysql://h:+1/shop",
                                   "mysql://h: 1/shop",
                                   "mysql://ann:hunter2%@h/shop",
                                   "mysql://ann:hunter2%4@h/shop",
                                   "mysql://ann:hunter2%zz@h/shop",
                                   "mysql://ann:hunter2%00@h/shop",
                                   "mysql://ann:hunter2#x@h/shop",
                                   "mysql://h/shop?hunter2",
                                   "mysql://h/shop?=hunter2",
                                   "mysql://h/shop?a=hunter2&a=hunter2",
                                   "mysql://ann:hunter2?x@h/shop",
                                   "mysql://ann:/hunter2@h",
                                   "mysql://ann:1/hunter2@h/shop",
                                   "mysql://ann:1?hunter2=x@h/shop",
                                   "mysql://ann:1@?hunter2=x@h/shop"}) {
        CAPTURE(text);
        CHECK(refusal_of_url(text).find("hunter2") == std::string::npos);
    }
}

TEST_CASE("percent-decoding accepts both cases and refuses an incomplete byte") {
    CHECK(percent_decoded("%41%6a%4A+%2B") == "AjJ++");
    CHECK(percent_decoded("").empty());
    for (const std::string text : {"%", "%4", "a%", "%g0", "%0g", "%%41", "%00"}) {
        CAPTURE(text);
        refusal_of([&] { (void)percent_decoded(text); });
    }
}

TEST_CASE("parameters may be empty, but not nameless or doubled") {
    CHECK(parse_parameters("").empty());
    CHECK(parse_parameters("&&").empty());
    CHECK(parse_parameters("a=").front().value.empty());
    CHECK(parse_parameters("a=b=c").front().value == "b=c");
    CHECK(parse_parameters("a%3D=%26").front().name == "a=");
    CHECK(parse_parameters("a%3D=%26").front().value == "&");
    for (const std::string text : {"a", "=1", "a=1&a=2"}) {
        CAPTURE(text);
        refusal_of([&] { (void)parse_parameters(text); });
    }
}

TEST_CASE("an unknown parameter is named if its name cannot be a password") {
    using rowlock::driver::refuse_parameter;
    const auto told = [](const std::string& name) {
        return refusal_of([&] { refuse_parameter("mysql", {name, "hunter2"}); });
    };
    CHECK(told("ssl-caa").find("ssl-caa") != std::string::npos);
    CHECK(told("ssl-caa").find("hunter2") == std::string::npos);
    CHECK(told("h/ter@x").find("h/ter@x") == std::string::npos);
}

TEST_CASE("a URL may name several hosts") {
    const auto several = parse_url("mysql://ann:p,w@db1:3307,[::1]:3308,db3/shop?a=1");
    CHECK(several.password == "p,w");
    CHECK(several.host == "db1");
    CHECK(several.port == 3307);
    REQUIRE(several.more_hosts.size() == 2);
    CHECK(several.more_hosts[0].host == "::1");
    CHECK(several.more_hosts[0].port == 3308);
    CHECK(several.more_hosts[1].host == "db3");
    CHECK(several.more_hosts[1].port == 0);
    CHECK(several.database == "shop");
    CHECK(parse_url("mysql://db1/shop").more_hosts.empty());
}

TEST_CASE("names of tables are taken out of the parameters, and the others are left") {
    using rowlock::driver::take_table_names;
    using rowlock::sql::dialect;
    auto all = parse_parameters("a=1&rowlock_prefix=shop%5F&b=2&rowlock%5Fschema=locks");
    const auto names = take_table_names(all, dialect::postgresql);
    CHECK(names.schema == "locks");
    CHECK(names.prefix == "shop_");
    REQUIRE(all.size() == 2);
    CHECK(all[0].name == "a");
    CHECK(all[1].name == "b");
    CHECK(take_table_names(all, dialect::mysql) == rowlock::sql::table_names{});
    CHECK(all.size() == 2);
}

TEST_CASE("a name of tables that would need quoting is refused, and not repeated") {
    using rowlock::driver::take_table_names;
    using rowlock::sql::dialect;
    const auto told = [](const std::string& text, dialect which = dialect::postgresql) {
        auto all = parse_parameters(text);
        return refusal_of([&] { (void)take_table_names(all, which); });
    };
    for (const std::string name :
         {"Hunter2", "2hunter", "hunter2%20", "hunter2-", "hunter2%22", "hunter2%27%3B--",
          "x%3Bdrop%20table%20hunter2", "hunter2.lease", "hunter2%60", "hunter2%0A",
          "hunter2%C3%A4", "hunter2_hunter2_hunter2_hunter2_"}) {
        CAPTURE(name);
        for (const auto which : {dialect::postgresql, dialect::mysql, dialect::sqlite}) {
            const auto refused = told("rowlock_prefix=" + name, which);
            CHECK(refused.find("table prefix") != std::string::npos);
            CHECK(refused.find("unter2") == std::string::npos);
        }
        const auto refused = told("rowlock_schema=" + name);
        CHECK(refused.find("schema") != std::string::npos);
        CHECK(refused.find("unter2") == std::string::npos);
    }
    CHECK(told("rowlock_prefix=").find("empty rowlock_prefix") != std::string::npos);
    CHECK(told("rowlock_schema=").find("empty rowlock_schema") != std::string::npos);
    CHECK(told("rowlock_schema=pg_x").find("pg_") != std::string::npos);
    CHECK(told("rowlock_prefix=sqlite_x", dialect::sqlite).find("sqlite_") != std::string::npos);
    for (const auto which : {dialect::mysql, dialect::sqlite}) {
        CHECK(told("rowlock_schema=shop", which).find("only PostgreSQL") != std::string::npos);
    }
}
