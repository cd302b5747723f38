// The inventory example: oversells without a lock, and never with one.

#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace {

nlohmann::json sell(const std::string& strategy, const std::string& url) {
    tool::arguments command{ROWLOCK_INVENTORY_PATH,
                            "--strategy",
                            strategy,
                            "--workers",
                            "8",
                            "--items",
                            "40",
                            "--json"};
    if (!url.empty()) command.insert(command.end(), {"--url", url});
    tool::process one{command};
    const int code = one.wait();
    CAPTURE(one.err());
    CHECK(code == 0);
    const std::string out = one.out();
    REQUIRE(nlohmann::json::accept(out));
    return nlohmann::json::parse(out);
}

void check_all_strategies(const std::string& url, const std::string& database) {
    CAPTURE(database);
    const auto none = sell("none", url);
    CHECK(none["database"] == database);
    CHECK(none["oversold"] > 0);
    for (const std::string strategy : {"lease", "fence", "row", "advisory", "optimistic"}) {
        if (strategy == "advisory" && database == "sqlite") continue;
        CAPTURE(strategy);
        const auto told = sell(strategy, url);
        CHECK(told["strategy"] == strategy);
        CHECK(told["workers"] == 8);
        CHECK(told["stock"] == 40);
        CHECK(told["sold"] == 40);
        CHECK(told["oversold"] == 0);
        CHECK(told["seconds"] > 0);
        // Only the optimistic strategy has conflicts, and none on SQLite, which has one writer.
        if (strategy != "optimistic") CHECK(told["conflicts"] == 0);
        if (strategy == "optimistic" && database != "sqlite") CHECK(told["conflicts"] > 0);
    }
}

}  // namespace

TEST_CASE("eight processes oversell without a lock and never with any of the strategies") {
    check_all_strategies("", "sqlite");
    if (const auto url = support::url_of(support::server::postgresql)) {
        check_all_strategies(*url, "postgresql");
    }
    if (const auto url = support::url_of(support::server::mariadb)) {
        check_all_strategies(*url, "mariadb");
    }
}

TEST_CASE("the inventory refuses unknown options and strategies") {
    for (const tool::arguments& more : {tool::arguments{"--strategy", "hope"},
                                        {"--strategy", "advisory"},  // on SQLite
                                        {"--workers", "0"},
                                        {"--items", "x"},
                                        {"--bogus", "1"}}) {
        tool::arguments command{ROWLOCK_INVENTORY_PATH};
        command.insert(command.end(), more.begin(), more.end());
        tool::process one{command};
        CHECK(one.wait() == 64);
        CHECK(one.err().starts_with("inventory: "));
    }
}
