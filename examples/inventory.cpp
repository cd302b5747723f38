// Many processes sell from one stock. Each sale reads the stock, thinks a little, and writes it
// back less one: without a lock two processes read the same number and both sell the same item.
//
//   inventory [--strategy none|lease] [--workers N] [--items M] [--url URL] [--json]
//
// Without --url: a SQLite file of its own that goes away. The tables inventory_… are made and
// dropped.

#include <rowlock/client.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using std::chrono::steady_clock;

namespace {

// ---- the shop: two tables
// --------------------------------------------------------------------------

class shop {
public:
    shop(const rowlock::sql::connection_source& source, const std::string& suffix)
        : db_{source.connect(soon())},
          stock_{"inventory_stock_" + suffix},
          sales_{"inventory_sale_" + suffix},
          read_{"select items from " + stock_ + " where id = 1"},
          write_{"update " + stock_ + " set items = $1 where id = 1"},
          record_{"insert into " + sales_ + " (id, items) values ($1, $2)"} {}

    void open(int items) {
        db_->query("create table " + stock_ + " (id integer primary key, items integer not null)",
                   soon());
        db_->query("create table " + sales_ + " (id bigint primary key, items integer not null)",
                   soon());
        db_->query("insert into " + stock_ + " values (1, " + std::to_string(items) + ")", soon());
    }
    void close() {
        db_->query("drop table if exists " + stock_, soon());
        db_->query("drop table if exists " + sales_, soon());
    }

    int stock() { return static_cast<int>(db_->execute(read_, {}, soon()).integer(0, 0)); }

    /// The dangerous half of read-then-write: what was read may be old by now.
    void sell(int stock_read, std::int64_t sale) {
        const bool sqlite = db_->speaks() == rowlock::sql::dialect::sqlite;
        db_->query(sqlite ? "begin immediate" : "begin", soon());
        db_->execute(write_, std::array{rowlock::sql::value{stock_read - 1}}, soon());
        db_->execute(record_,
                     std::array{rowlock::sql::value{sale}, rowlock::sql::value{stock_read}},
                     soon());
        db_->query("commit", soon());
    }

    int sold() {
        return static_cast<int>(db_->query("select count(*) from " + sales_, soon()).integer(0, 0));
    }
    std::string server() {
        if (db_->speaks() != rowlock::sql::dialect::mysql) {
            return std::string{to_string(db_->speaks())};
        }
        const auto version = db_->query("select version()", soon());
        return version.text(0, 0).find("MariaDB") == std::string_view::npos ? "mysql" : "mariadb";
    }

private:
    static rowlock::sql::deadline soon() { return steady_clock::now() + 30s; }

    std::unique_ptr<rowlock::sql::connection> db_;
    std::string stock_, sales_;
    rowlock::sql::statement read_, write_, record_;
};

// ---- strategies: how a worker sells until nothing is left
// ------------------------------------------

/// One worker's view.
struct counter_clerk {
    const rowlock::sql::connection_source& database;
    shop& goods;
    std::string lock_name;
    std::int64_t next_sale;  ///< unique among the workers
    int patience;            ///< most sales of one worker
    int conflicts = 0;

    /// False if there was nothing left. Thinks as long as a small calculation takes.
    bool sell_one() {
        const int stock = goods.stock();
        if (stock <= 0 || patience-- <= 0) return false;
        std::this_thread::sleep_for(2ms);
        goods.sell(stock, next_sale++);
        std::putchar('.');  // our parent counts
        std::fflush(stdout);
        return true;
    }
};

void without_a_lock(counter_clerk& clerk) {
    while (clerk.sell_one()) {
    }
}

void under_a_lease(counter_clerk& clerk) {
    // Eight workers who look every few milliseconds: the hand-over is quick and the load small.
    rowlock::client locks{clerk.database, {.poll_interval = 10ms}};
    for (bool more = true; more;) {
        auto lease = locks.acquire(clerk.lock_name);
        more = clerk.sell_one();
        lease.release();
    }
}

struct strategy {
    std::string_view name;
    void (*work)(counter_clerk&);
    bool never_oversells;
};
constexpr strategy strategies[] = {
    {"none", without_a_lock, false},
    {"lease", under_a_lease, true},
};

const strategy* find_strategy(std::string_view name) {
    for (const auto& each : strategies) {
        if (each.name == name) return &each;
    }
    return nullptr;
}

// ---- the command line
// ------------------------------------------------------------------------------

struct options {
    std::string strategy = "lease", url;
    int workers = 8, items = 100;
    bool json = false;
    int worker = -1;     // of a worker process: its number …
    std::string suffix;  // … and the tables' names
};

[[noreturn]] void refuse(const std::string& why) {
    std::cerr << "inventory: " << why
              << "\nusage: inventory [--strategy none|lease] [--workers N] [--items M] [--url URL] "
                 "[--json]\n";
    std::exit(64);
}

int number(const std::string& option, const std::string& text, int most) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || value < 0 || value > most) refuse(option + " is no good");
    return static_cast<int>(value);
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
        const std::string value = argv[++i];
        if (name == "--strategy")
            all.strategy = value;
        else if (name == "--url")
            all.url = value;
        else if (name == "--workers")
            all.workers = number(name, value, 1000);
        else if (name == "--items")
            all.items = number(name, value, 1'000'000);
        else if (name == "--worker")
            all.worker = number(name, value, 1000);
        else if (name == "--suffix")
            all.suffix = value;
        else
            refuse(name + " is unknown");
    }
    if (find_strategy(all.strategy) == nullptr) refuse("there is no strategy " + all.strategy);
    if (all.workers < 1 || all.items < 1) refuse("at least one worker and one item");
    return all;
}

// ---- a worker process
// ------------------------------------------------------------------------------

int work(const options& told) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    // By the environment: what is on a command line everybody can read.
    const char* url = std::getenv("INVENTORY_URL");
    if (url == nullptr) refuse("a worker is started by this program alone");
    const auto database = rowlock::open(url);
    shop goods{database, told.suffix};
    counter_clerk clerk{.database = database,
                        .goods = goods,
                        .lock_name = "inventory/" + told.suffix,
                        .next_sale = std::int64_t{told.worker} * 10'000'000,
                        .patience = told.items * 10};
    std::putchar('r');  // ready
    std::fflush(stdout);
    char go = 0;
    if (read(STDIN_FILENO, &go, 1) != 0) return EXIT_FAILURE;  // all begin when the gate closes
    find_strategy(told.strategy)->work(clerk);
    return EXIT_SUCCESS;
}

// ---- the parent
// ------------------------------------------------------------------------------------

volatile std::sig_atomic_t interrupted = 0;

struct outcome {
    int sold = 0;
    double seconds = 0;
};

class crew {
public:
    crew(const options& told, const std::string& suffix) {
        int gate[2], news[2];
        if (pipe(gate) != 0 || pipe(news) != 0) throw std::runtime_error{"no pipe"};
        for (int i = 0; i < told.workers; ++i) {
            const pid_t child = fork();
            if (child == 0) {
                dup2(gate[0], STDIN_FILENO);
                dup2(news[1], STDOUT_FILENO);
                for (const int end : {gate[0], gate[1], news[0], news[1]}) ::close(end);
                const std::string me = std::to_string(i), items = std::to_string(told.items);
                execl("/proc/self/exe", "inventory", "--worker", me.c_str(), "--suffix",
                      suffix.c_str(), "--strategy", told.strategy.c_str(), "--items", items.c_str(),
                      static_cast<char*>(nullptr));
                _exit(127);
            }
            if (child > 0) workers_.push_back(child);
        }
        ::close(gate[0]);
        ::close(news[1]);
        gate_ = gate[1];
        news_ = news[0];
    }
    crew(const crew&) = delete;
    crew& operator=(const crew&) = delete;
    ~crew() {
        for (const pid_t each : workers_) kill(each, SIGTERM);
        for (const pid_t each : workers_) waitpid(each, nullptr, 0);
        ::close(news_);
    }

    /// Opens the gate when everybody is ready, and counts sales until all are done.
    double run(int items) {
        char news[256];
        for (std::size_t ready = 0; ready < workers_.size(); ++ready) {
            if (read(news_, news, 1) != 1) throw std::runtime_error{"a worker did not start"};
        }
        const auto start = steady_clock::now();
        ::close(gate_);
        int sold = 0;
        for (ssize_t got = 0; (got = read(news_, news, sizeof news)) > 0;) {
            sold += static_cast<int>(got);
            if (isatty(STDERR_FILENO))
                std::cerr << "\rsold " << sold << " of " << items << std::flush;
        }
        if (isatty(STDERR_FILENO)) std::cerr << "\r\033[K";
        if (interrupted) throw std::runtime_error{"interrupted"};
        bool failed = false;
        for (const pid_t each : workers_) {
            int status = 0;
            waitpid(each, &status, 0);
            failed = failed || status != 0;
        }
        workers_.clear();
        if (failed) throw std::runtime_error{"a worker failed"};
        return std::chrono::duration<double>(steady_clock::now() - start).count();
    }

private:
    std::vector<pid_t> workers_;
    int gate_ = -1;
    int news_ = -1;
};

void report(const options& told, const std::string& server, const outcome& result) {
    const int oversold = std::max(0, result.sold - told.items);
    if (told.json) {
        std::printf(
            "{\"strategy\": \"%s\", \"database\": \"%s\", \"workers\": %d, \"stock\": %d, "
            "\"sold\": %d, \"oversold\": %d, \"conflicts\": %d, \"seconds\": %.3f}\n",
            told.strategy.c_str(), server.c_str(), told.workers, told.items, result.sold, oversold,
            0, result.seconds);
        return;
    }
    std::printf(
        "strategy  database    workers  stock   sold  oversold  seconds  ms/sale\n"
        "%-8s  %-10s  %7d  %5d  %5d  %8d  %7.2f  %7.1f\n",
        told.strategy.c_str(), server.c_str(), told.workers, told.items, result.sold, oversold,
        result.seconds, result.seconds * 1000 / std::max(1, result.sold));
}

int oversee(const options& told) {
    const std::string suffix = std::to_string(getpid());
    const auto database = rowlock::open(told.url);
    rowlock::migrate(database);
    setenv("INVENTORY_URL", told.url.c_str(), 1);
    shop goods{database, suffix};
    goods.open(told.items);
    try {
        outcome result;
        {
            crew workers{told, suffix};
            result.seconds = workers.run(told.items);
        }
        result.sold = goods.sold();
        const int left = goods.stock();
        report(told, goods.server(), result);
        goods.close();
        const bool exact = result.sold == told.items && left == 0;
        return exact || !find_strategy(told.strategy)->never_oversells ? EXIT_SUCCESS
                                                                       : EXIT_FAILURE;
    } catch (...) {
        goods.close();
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
        struct sigaction stop {};
        stop.sa_handler = [](int) { interrupted = 1; };
        for (const int each : {SIGINT, SIGTERM}) sigaction(each, &stop, nullptr);
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
