// 64 processes sell 10 000 items: with each strategy exactly 10 000 are sold. It takes minutes, so
// scripts/test leaves the label out and scripts/test -L stress runs it.

#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace {

constexpr int workers = 64;
constexpr int items = 10'000;

void sell_exactly_the_stock(const std::string& strategy, const std::string& url) {
    tool::process shop{{ROWLOCK_INVENTORY_PATH, "--strategy", strategy, "--workers",
                        std::to_string(workers), "--items", std::to_string(items), "--think", "0",
                        "--json", "--url", url}};
    const int code = shop.wait(std::chrono::minutes{15});
    CAPTURE(shop.err());
    REQUIRE(code == 0);
    const auto told = nlohmann::json::parse(shop.out());
    MESSAGE(told.dump());
    CHECK(told["sold"] == items);
    CHECK(told["oversold"] == 0);
}

void on_every_database(const std::string& strategy, bool sqlite = true) {
    if (sqlite) {
        const tool::scratch folder;
        sell_exactly_the_stock(strategy, "sqlite:" + (folder / "stock.db"));
    }
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        if (const auto url = support::url_of(which)) sell_exactly_the_stock(strategy, *url);
    }
}

}  // namespace

TEST_CASE("lease: 64 workers sell 10 000 items and not one more") {
    on_every_database("lease");
}

TEST_CASE("fence: 64 workers sell 10 000 items and not one more") {
    on_every_database("fence");
}

TEST_CASE("row: 64 workers sell 10 000 items and not one more") {
    on_every_database("row");
}

TEST_CASE("advisory: 64 workers sell 10 000 items and not one more") {
    on_every_database("advisory", false);
}

TEST_CASE("optimistic: 64 workers sell 10 000 items and not one more") {
    on_every_database("optimistic");
}
