// Many processes sell from one stock. Each sale reads the stock, pauses, and writes it decremented:
// without a lock two processes read the same number and both sell the same item. strategies.cpp
// shows the remedies.
//
//   inventory [--strategy none|lease|fence|row|advisory|optimistic] [--workers N] [--items M]
//             [--think MS] [--url URL] [--json]
//
// Without --url: a temporary SQLite file. The tables inventory_… are made and
// dropped.

#include "crew.hpp"
#include "shop.hpp"
#include "strategies.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>

namespace {

struct options {
    std::string strategy = "lease", url;
    int workers = 8, items = 100;
    int think = 2;
    bool json = false;
    int worker = -1;     // of a worker process: its number …
    std::string suffix;  // … and the tables' names
};

[[noreturn]] void refuse(const std::string& why) {
    std::string names;
    for (const auto& each : strategies()) names.append(names.empty() ? "" : "|").append(each.name);
    std::cerr << "inventory: " << why << "\nusage: inventory [--strategy " << names
              << "] [--workers N] [--items M] [--think MS] [--url URL] [--json]\n";
    std::exit(64);
}

int number(const std::string& option, const std::string& text, int most) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || value < 0 || value > most) refuse(option + " is not valid");
    return static_cast<int>(value);
}

void apply(options& all, const std::string& name, const std::string& value) {
    if (name == "--strategy") {
        all.strategy = value;
    } else if (name == "--url") {
        all.url = value;
    } else if (name == "--workers") {
        all.workers = number(name, value, 1000);
    } else if (name == "--items") {
        all.items = number(name, value, 1'000'000);
    } else if (name == "--think") {
        all.think = number(name, value, 60'000);
    } else if (name == "--worker") {
        all.worker = number(name, value, 1000);
    } else if (name == "--suffix") {
        all.suffix = value;
    } else {
        refuse(name + " is unknown");
    }
}

options parse(int argc, char** argv) {
    options all;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--json") {
            all.json = true;
            continue;
        }
        if (i + 1 == argc) refuse(name + " is unknown, or lacks its value");
        apply(all, name, argv[++i]);
    }
    if (find_strategy(all.strategy) == nullptr) refuse("there is no strategy " + all.strategy);
    if (all.workers < 1 || all.items < 1) refuse("at least one worker and one item");
    return all;
}

// --- a worker process ---------------------------------------------------------------------------

int work(const options& told) {
    // In the environment, since every user can read a command line.
    const char* url = std::getenv("INVENTORY_URL");
    if (url == nullptr) refuse("a worker is started by this program alone");
    const auto database = rowlock::open(url);
    const auto db = database.connect(soon());
    const shop goods{told.suffix};
    clerk me{.database = database,
             .db = *db,
             .goods = goods,
             .lock_name = "inventory/" + told.suffix,
             .next_sale = std::int64_t{told.worker} * 10'000'000,
             .patience = told.items * 10,
             .to_think = std::chrono::milliseconds{told.think}};
    if (!wait_for_gate()) return EXIT_FAILURE;
    find_strategy(told.strategy)->work(me);
    return EXIT_SUCCESS;
}

// --- the parent ---------------------------------------------------------------------------------

struct outcome {
    std::string server;
    tally told;
    int sold = 0;
    double seconds = 0;
};

void report(const options& told, const outcome& result) {
    const int oversold = std::max(0, result.sold - told.items);
    if (told.json) {
        std::printf(
            "{\"strategy\": \"%s\", \"database\": \"%s\", \"workers\": %d, \"stock\": %d, "
            "\"sold\": %d, \"oversold\": %d, \"conflicts\": %d, \"seconds\": %.3f}\n",
            told.strategy.c_str(), result.server.c_str(), told.workers, told.items, result.sold,
            oversold, result.told.conflicts, result.seconds);
        return;
    }
    std::printf(
        "strategy    database    workers  stock   sold  oversold  conflicts  retries  seconds  "
        "ms/sale\n"
        "%-10s  %-10s  %7d  %5d  %5d  %8d  %9d  %7d  %7.2f  %7.2f\n",
        told.strategy.c_str(), result.server.c_str(), told.workers, told.items, result.sold,
        oversold, result.told.conflicts, result.told.retries, result.seconds,
        result.seconds * 1000 / std::max(1, result.sold));
}

void show_progress(const options& told, const tally& so_far) {
    if (!isatty(STDERR_FILENO)) return;
    std::cerr << "\rsold " << so_far.sales << " of " << told.items << ", conflicts "
              << so_far.conflicts << "\033[K" << std::flush;
}

outcome sell_everything(const options& told, const std::string& suffix) {
    outcome result;
    crew workers{told.workers, [&](int i) {
                     return std::vector<std::string>{"--worker",   std::to_string(i),
                                                     "--suffix",   suffix,
                                                     "--strategy", told.strategy,
                                                     "--items",    std::to_string(told.items),
                                                     "--think",    std::to_string(told.think),
                                                     "--workers",  std::to_string(told.workers)};
                 }};
    result.seconds =
        workers.run(result.told, [&](const tally& so_far) { show_progress(told, so_far); });
    if (isatty(STDERR_FILENO)) std::cerr << "\r\033[K";
    return result;
}

int oversee(const options& told) {
    const std::string suffix = std::to_string(getpid());
    const auto database = rowlock::open(told.url);
    const strategy& how = *find_strategy(told.strategy);
    if (database.speaks() == rowlock::sql::dialect::sqlite && !how.on_sqlite) {
        refuse("SQLite cannot do the strategy " + told.strategy);
    }
    rowlock::migrate(database);
    setenv("INVENTORY_URL", told.url.c_str(), 1);
    const shop goods{suffix};
    const auto db = database.connect(soon());
    goods.open(*db, told.items);
    try {
        outcome result = sell_everything(told, suffix);
        result.server = server_of(*db);
        result.sold = goods.sold(*db);
        const bool exact = result.sold == told.items && goods.stock(*db) == 0;
        report(told, result);
        goods.close(*db);
        return exact || !how.never_oversells ? EXIT_SUCCESS : EXIT_FAILURE;
    } catch (...) {
        goods.close(*db);
        throw;
    }
}

}  // namespace

int main(int argc, char** argv) {
    options told = parse(argc, argv);
    std::string folder;
    int code = EXIT_FAILURE;
    try {
        if (told.worker >= 0) return work(told);
        catch_interrupts();
        if (told.url.empty()) {
            folder = (std::filesystem::temp_directory_path() / "inventory-XXXXXX").string();
            if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
            told.url = "sqlite:" + folder + "/stock.db";
        }
        code = oversee(told);
    } catch (const std::exception& failure) {
        std::cerr << "inventory: " << failure.what() << '\n';
    }
    std::error_code ignored;
    if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
    return code;
}
