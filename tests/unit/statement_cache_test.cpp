#include "sql/statement_cache.hpp"

#include <doctest/doctest.h>

#include <barrier>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

using rowlock::sql::statement_cache;

TEST_CASE("one text is always the same statement, and another text a different one") {
    statement_cache cache{10};
    const auto one = cache.of("select 1");
    CHECK(one.text() == "select 1");
    CHECK(cache.of("select 2").id() != one.id());
    CHECK(cache.of("select 1").id() == one.id());
}

TEST_CASE("only a forgotten statement is a different one afterwards") {
    statement_cache cache{10};
    const auto one = cache.of("select 1");
    const auto two = cache.of("select 2");
    cache.forget("select 1");
    cache.forget("never seen");
    CHECK(cache.of("select 1").id() != one.id());
    CHECK(cache.of("select 1").text() == "select 1");
    CHECK(cache.of("select 2").id() == two.id());
}

TEST_CASE("the number of kept texts is limited") {
    statement_cache cache{3};
    std::vector<std::uint64_t> ids;
    for (const char* text : {"a", "b", "c"}) ids.push_back(cache.of(text).id());
    CHECK(cache.of("a").id() == ids[0]);  // as many as it keeps
    const auto fourth = cache.of("d");
    CHECK(cache.of("d").id() == fourth.id());
    CHECK(cache.of("a").id() != ids[0]);
    CHECK(cache.of("b").id() != ids[1]);
}

TEST_CASE("threads that use a new text at the same time get the same statement") {
    constexpr std::size_t threads = 8;
    constexpr std::size_t texts = 200;
    statement_cache cache{texts};
    std::barrier start{static_cast<std::ptrdiff_t>(threads)};
    std::vector<std::vector<std::uint64_t>> seen(threads);
    {
        std::vector<std::jthread> running;
        for (auto& mine : seen) {
            running.emplace_back([&] {
                for (std::size_t i = 0; i < texts; ++i) {
                    start.arrive_and_wait();
                    mine.push_back(cache.of("select " + std::to_string(i)).id());
                }
            });
        }
    }
    for (const auto& each : seen) CHECK(each == seen.front());
    CHECK(std::set<std::uint64_t>{seen.front().begin(), seen.front().end()}.size() == texts);
}
