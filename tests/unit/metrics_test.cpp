// What metrics are made of: histograms, classes, and the text. tests/wire/metrics_test.cpp has
// those of a client, tests/tool/metrics_test.cpp those of a database.

#include "metrics/measurements.hpp"
#include "metrics/text.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using metrics::acquire_mode;
using metrics::acquire_outcome;
using metrics::measurements;

namespace {

constexpr std::array<metrics::nanoseconds, 3> some_bounds{1ms, 10ms, 1s};
constexpr metrics::metric one_histogram{"some_seconds", metrics::type::histogram, "class",
                                        "seconds", "Of a test."};

std::uint64_t times_granted(const metrics::class_measurements& of) {
    return of.acquires(acquire_mode::exclusive, acquire_outcome::granted).count;
}

}  // namespace

TEST_CASE("a duration counts in the first bucket whose bound it does not exceed") {
    metrics::histogram<some_bounds> counted;
    for (const auto each :
         {0ns, 1'000'000ns, 1'000'001ns, 1'000'000'000ns, 2'000'000'000ns, -1ns}) {
        counted.observe(each);
    }
    const auto seen = counted.read();
    CHECK(seen.counts.at(0) == 3);  // 0, 1 ms, and a clock that went back
    CHECK(seen.counts.at(1) == 1);
    CHECK(seen.counts.at(2) == 1);
    CHECK(seen.counts.at(3) == 1);
    CHECK(seen.count == 6);
    CHECK(seen.sum == 3'002'000'001ns);
}

TEST_CASE("threads that measure at the same time lose no duration") {
    metrics::histogram<some_bounds> counted;
    {
        std::vector<std::jthread> all;
        for (int i = 0; i < 4; ++i) {
            all.emplace_back([&] {
                for (int n = 0; n < 10'000; ++n) counted.observe(5ms);
            });
        }
    }
    CHECK(counted.read().counts.at(1) == 40'000);
    CHECK(counted.read().sum == 200s);
}

TEST_CASE("a histogram is written as buckets that add up, a sum and a count") {
    metrics::histogram<some_bounds> counted;
    for (const auto each : {500us, 5'000us, 6'000us, 7'000'000us}) counted.observe(each);
    metrics::text out;
    out.begin(one_histogram);
    out.sample({{"class", "report"}}, counted.read());
    CHECK(out.str() ==
          "# HELP some_seconds Of a test.\n"
          "# TYPE some_seconds histogram\n"
          "some_seconds_bucket{class=\"report\",le=\"0.001\"} 1\n"
          "some_seconds_bucket{class=\"report\",le=\"0.01\"} 3\n"
          "some_seconds_bucket{class=\"report\",le=\"1\"} 3\n"
          "some_seconds_bucket{class=\"report\",le=\"+Inf\"} 4\n"
          "some_seconds_sum{class=\"report\"} 7.0115\n"
          "some_seconds_count{class=\"report\"} 4\n");
}

TEST_CASE("labels and help are escaped, empty labels left out, and metrics without samples too") {
    metrics::text out;
    out.begin({"unused", metrics::type::gauge, "", "", "No sample."});
    out.begin({"some", metrics::type::gauge, "a, b", "", "A \\ and a \"quote\"\nin two lines."});
    out.sample({{"a", "x\\y\"z\n"}, {"b", ""}}, std::uint64_t{1});
    out.sample({{"a", ""}}, metrics::nanoseconds{-1'500'000'000});
    CHECK(out.str() ==
          "# HELP some A \\\\ and a \"quote\"\\nin two lines.\n"
          "# TYPE some gauge\n"
          "some{a=\"x\\\\y\\\"z\\n\"} 1\n"
          "some -1.5\n");
}

TEST_CASE("without a function that classifies, all names are of one class without a name") {
    measurements all{{}};
    all.of("a").acquired(acquire_mode::exclusive, acquire_outcome::granted, 1ms);
    all.of("b").acquired(acquire_mode::exclusive, acquire_outcome::granted, 1ms);
    REQUIRE(all.classes().size() == 1);
    CHECK(all.classes().front()->name() == "");
    CHECK(times_granted(*all.classes().front()) == 2);
}

TEST_CASE("names of one class are measured together, the 65th class and unusable ones as other") {
    measurements all{[](std::string_view name) -> std::string {
        if (name == "throws") throw std::runtime_error{"no class"};
        if (name == "empty") return {};
        if (name == "long") return std::string(65, 'x');
        if (name == "no text") return "\xff";
        return std::string{name.substr(0, name.find('/'))};
    }};
    auto& report = all.of("report/1");
    CHECK(&all.of("report/2") == &report);
    CHECK(report.name() == "report");
    for (int i = 1; i < 64; ++i) {
        CHECK(all.of(std::to_string(i)).name() == std::to_string(i));
    }
    for (const char* each : {"64", "65", "throws", "empty", "long", "no text", "other"}) {
        CAPTURE(std::string{each});
        CHECK(all.of(each).name() == "other");
    }
    CHECK(&all.of("report/3") == &report);
    CHECK(all.classes().size() == 65);
    CHECK(all.classes().back()->name() == "other");
}

TEST_CASE("threads that name a class first at the same time get the same one") {
    for (int round = 0; round < 100; ++round) {
        measurements all{[](std::string_view name) { return std::string{name}; }};
        {
            std::vector<std::jthread> threads;
            for (int i = 0; i < 4; ++i) {
                threads.emplace_back([&] {
                    for (int n = 0; n < 70; ++n) {
                        all.of(std::to_string(n))
                            .acquired(acquire_mode::exclusive, acquire_outcome::granted, 1ms);
                    }
                });
            }
        }
        std::set<std::string_view> names;
        std::uint64_t count = 0;
        for (const auto* const each : all.classes()) {
            names.insert(each->name());
            count += times_granted(*each);
        }
        REQUIRE(all.classes().size() == 65);
        REQUIRE(names.size() == 65);
        REQUIRE(count == 4 * 70);
    }
}

TEST_CASE("each metric is named once, by the rules of Prometheus") {
    std::set<std::string_view> names;
    for (const auto& each : metrics::all_metrics()) {
        CAPTURE(std::string{each.name});
        CHECK(names.insert(each.name).second);
        CHECK(each.name.starts_with("rowlock_"));
        CHECK(each.name.ends_with("_total") == (each.is == metrics::type::counter));
        CHECK(each.name.ends_with("_seconds") == (each.unit == "seconds"));
        CHECK(each.help.ends_with('.'));
        const bool plain = std::ranges::all_of(
            each.name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
        CHECK(plain);
    }
}
