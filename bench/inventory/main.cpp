// What a sale costs in the inventory example under a lease, compared with a row that is locked by
// SELECT … FOR UPDATE (T17): eight processes sell from one stock, and each sale reads it, pauses,
// and writes it.
#include "common/program.hpp"
#include "throughput/contestants.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {
namespace {

struct inventory_options {
    int workers = 8;
    int items = 400;
    int think_ms = 2;
};

std::string quoted(const std::string& word) {
    std::string made = "'";
    for (const char c : word) made += c == '\'' ? "'\\''" : std::string{c};
    return made + "'";
}

/// Sells the stock, and returns the milliseconds of a sale.
double sell(const std::string& strategy, const std::string& url, const inventory_options& how) {
    const auto command =
        fmt::format("{} --json --strategy {} --workers {} --items {} --think {} --url {}",
                    quoted(ROWLOCK_INVENTORY_PATH), strategy, how.workers, how.items, how.think_ms,
                    quoted(url));
    std::FILE* const pipe = ::popen(command.c_str(), "re");
    if (pipe == nullptr) throw std::runtime_error{"the inventory example could not be started"};
    std::string text;
    std::array<char, 512> part{};
    while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
    if (::pclose(pipe) != 0) throw std::runtime_error{"the inventory example failed"};
    const auto told = nlohmann::json::parse(text);
    if (told["sold"] != how.items) throw std::runtime_error{"not every item was sold once"};
    return told["seconds"].get<double>() * 1000 / how.items;
}

/// Of all processes that sell, with the servers.
cpu_cost cost_of_a_sale(const std::string& strategy, const std::string& url,
                        const inventory_options& how) {
    const cpu_meter cpu{ended_children_cpu_time};
    (void)sell(strategy, url, how);
    return cpu.for_each_of(how.items);
}

void measure(const program_options& common, const std::vector<std::string>& databases,
             const throughput_options& options, const inventory_options& how, findings& found) {
    const int rounds = options.rounds != 0 ? options.rounds : common.quick ? 5 : 11;
    for (const std::string& each : databases) {
        const temporary_folder folder;
        const auto url = url_of(each, folder);
        std::vector<double> lease;
        std::vector<double> row;
        for (int i = 0; i < rounds; ++i) {
            lease.push_back(sell("lease", url, how));
            row.push_back(sell("row", url, how));
        }
        found.add({.id = fmt::format("T17/inventory-{}", each),
                   .ours = median(lease),
                   .theirs = median(row),
                   .unit = "ms a sale",
                   .side = wanted::at_most,
                   .target = 1.5,
                   .our_cpu = cost_of_a_sale("lease", url, how),
                   .their_cpu = cost_of_a_sale("row", url, how)});
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::inventory_options how;
    return bench::run_on_databases(
        argc, argv, "Measures the inventory example under a lease, compared with a locked row.",
        [&](const bench::program_options& common, const std::vector<std::string>& databases,
            const bench::throughput_options& options,
            bench::findings& found) { bench::measure(common, databases, options, how, found); },
        [&](CLI::App& app) {
            app.add_option("--workers", how.workers, "Processes that sell")
                ->check(CLI::Range(1, 100))
                ->capture_default_str();
            app.add_option("--items", how.items, "The stock")
                ->check(CLI::Range(1, 100'000))
                ->capture_default_str();
            app.add_option("--think", how.think_ms, "Milliseconds between reading and writing")
                ->check(CLI::Range(0, 1000))
                ->capture_default_str();
        });
}
