// The example programs while another client holds their lock, and while the database is down. A
// test for each program checks that it works while its lock is free.

#include "tool/tool.hpp"
#include <rowlock/client.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

enum class on : unsigned char { sqlite, postgresql, mariadb };

struct program {
    const char* name;
    const char* lock;  ///< the lock that it waits for, or null
    on where = on::sqlite;
};

const std::vector<program> programs{
    {"01_scoped_lease", "nightly-report"},
    {"02_try_with_timeout", "import"},
    {"03_scoped_lock", "account/1"},
    {"04_recursive", "catalog"},
    {"05_lost_handling", "migration"},
    {"06_scheduled_cleanup", "stale-job"},
    {"07_leader", "scheduler"},
    {"08_fence_libpq", "example/account/1", on::postgresql},
    {"09_fence_connector_cpp", "example/account/1", on::mariadb},
    {"10_fence_sqlite", "example/account/1"},
    {"11_fence_soci", "example/account/1"},
    {"12_optimistic", nullptr},
    {"13_row_session", nullptr},
    {"14_advisory_lock", nullptr, on::postgresql},
    {"15_semaphore", nullptr},
    {"16_shared_mutex", nullptr},
    {"17_multi_lock", nullptr},
    {"18_periodic", nullptr},
    {"19_transfer", nullptr},
    {"20_latch", nullptr},
    {"21_double_barrier", nullptr},
    {"23_multi_mode", nullptr},
    {"24_spans", "import"},
};

tool::arguments command(const program& one, const std::string& url) {
    return {std::string{ROWLOCK_EXAMPLES} + "/" + one.name, url};
}

std::optional<std::string> url_for(const program& one, const tool::tables& file) {
    if (one.where == on::sqlite) return file.url();
    return support::url_of(one.where == on::postgresql ? support::server::postgresql
                                                       : support::server::mariadb);
}

const char* out_of_reach(const program& one) {
    if (one.where == on::mariadb) return "mysql://me:secret@127.0.0.1:1/shop";
    if (one.name == std::string{"10_fence_sqlite"}) return "sqlite:/no/such/folder/locks.db";
    return "postgresql://me:secret@127.0.0.1:1/shop";
}

}  // namespace

TEST_CASE("an example program waits while another client holds its lock, and then does its work") {
    for (const auto& each : programs) {
        if (each.lock == nullptr) continue;
        CAPTURE(std::string{each.name});
        const auto file = tool::sqlite_tables();
        const auto url = url_for(each, *file);
        if (!url) continue;
        const auto source = rowlock::open(*url);
        rowlock::migrate(source);
        rowlock::client another{source};
        auto held = another.acquire(each.lock);
        tool::process one{command(each, *url)};
        CHECK(tool::eventually([&] { return !another.waiters(each.lock).empty(); }));
        CHECK_FALSE(one.is_over());
        CHECK(held.held());
        held.release();
        CHECK(one.wait() == 0);
        CHECK(one.out() != "");
        CHECK(one.err() == "");
    }
}

TEST_CASE("an example program without its database does nothing, and says why") {
    for (const auto& each : programs) {
        CAPTURE(std::string{each.name});
        tool::process one{command(each, out_of_reach(each))};
        CHECK(one.wait() == 1);
        CHECK(one.out() == "");
        CHECK(one.err() != "");
        CHECK(one.err().find("secret") == std::string::npos);
    }
}

TEST_CASE("the example of spans prints a wait and a hold of the caller's trace") {
    const std::string trace = "0af7651916cd43dd8448eb211c80319c";
    const auto run = [](const std::string& header) {
        tool::process one{{std::string{ROWLOCK_EXAMPLES} + "/24_spans"},
                          {.variables = {{"TRACEPARENT", header}}}};
        CHECK(one.wait() == 0);
        std::vector<nlohmann::json> spans;
        std::istringstream lines{one.out()};
        for (std::string line; std::getline(lines, line);) {
            REQUIRE(nlohmann::json::accept(line));
            const auto scope = nlohmann::json::parse(line)["resourceSpans"][0]["scopeSpans"][0];
            CHECK(scope["scope"]["name"] == "rowlock");
            spans.push_back(scope["spans"][0]);
        }
        return spans;
    };
    const auto spans = run("00-" + trace + "-b7ad6b7169203331-01");
    REQUIRE(spans.size() == 2);
    CHECK(spans[0]["name"] == "acquire import");
    CHECK(spans[1]["name"] == "hold import");
    CHECK(spans[0]["spanId"] != spans[1]["spanId"]);
    for (const auto& each : spans) {
        CHECK(each["traceId"] == trace);
        CHECK(each["parentSpanId"] == "b7ad6b7169203331");
        CHECK(each["spanId"].get<std::string>().size() == 16);
        CHECK(each["status"]["code"] == 0);
        CHECK(std::stoll(each["startTimeUnixNano"].get<std::string>()) <=
              std::stoll(each["endTimeUnixNano"].get<std::string>()));
    }
    CHECK(spans[0]["endTimeUnixNano"] == spans[1]["startTimeUnixNano"]);
    // Not a header: the root of a trace of its own.
    const auto alone = run("no trace");
    REQUIRE(alone.size() == 2);
    CHECK(alone[0]["traceId"] == alone[1]["traceId"]);
    CHECK(alone[0]["traceId"].get<std::string>().size() == 32);
    CHECK(alone[0]["traceId"] != trace);
    CHECK(alone[0]["parentSpanId"] == "");
}
