// A process of the queue's stress tests: a client whose threads acquire and release, and which logs
// its actions. crew.cpp starts it.
//
//   stress_queue_worker KEY=VALUE…     the URL in the environment, ROWLOCK_STRESS_URL
//
// Prints "ready", starts at the first line of its standard input, and stops when that is closed, so
// that it ends with the test.

#include "stress/history.hpp"
#include "stress/log_file.hpp"
#include "stress/plan.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>
#include <rowlock/transaction.hpp>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using stress::boot_time;
using stress::log_file;
using stress::micros;

constexpr auto patience = 10s;

class settings {
public:
    settings(int count, char** words) {
        for (int i = 1; i < count; ++i) {
            const std::string word = words[i];
            const auto at = word.find('=');
            values_[word.substr(0, at)] = word.substr(at + 1);
        }
    }
    [[nodiscard]] const std::string& text(const std::string& key) const { return values_.at(key); }
    [[nodiscard]] int number(const std::string& key) const { return std::stoi(values_.at(key)); }

private:
    std::map<std::string, std::string> values_;
};

/// The database's clock, read on a connection that is not the client's.
class database_clock {
public:
    /// @param here the server runs on this host, whose clock is then the database's
    database_clock(rowlock::sql::connection_source source, bool here)
        : source_{std::move(source)},
          here_{here || source_.speaks() == rowlock::sql::dialect::sqlite} {}

    micros now() {
        if (here_) return stress::wall_time();
        const std::lock_guard lock{mutex_};
        for (int left = 20;; --left) {  // tests kill connections
            try {
                if (!connection_) connection_ = source_.connect(until());
                return connection_->execute(statement_, {}, until()).integer(0, 0);
            } catch (const rowlock::error&) {
                connection_.reset();
                if (left == 0) throw;
                std::this_thread::sleep_for(5ms);
            }
        }
    }

private:
    static rowlock::sql::deadline until() { return std::chrono::steady_clock::now() + patience; }

    rowlock::sql::connection_source source_;
    bool here_;
    rowlock::sql::statement statement_{
        source_.speaks() == rowlock::sql::dialect::postgresql
            ? "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
            : "select cast(unix_timestamp(sysdate(6)) * 1000000 as signed)"};
    std::mutex mutex_;
    std::unique_ptr<rowlock::sql::connection> connection_;
};

/// Requests stops after a given time, for many calls, in one thread.
class stopper {
public:
    void request(std::stop_source stop, micros at) {
        const std::lock_guard lock{mutex_};
        waiting_.emplace(at, std::move(stop));
    }

private:
    void run(const std::stop_token& over) {
        while (!over.stop_requested()) {
            std::vector<std::stop_source> due;
            {
                const std::lock_guard lock{mutex_};
                const auto end = waiting_.upper_bound(boot_time());
                for (auto each = waiting_.begin(); each != end; ++each) {
                    due.push_back(each->second);
                }
                waiting_.erase(waiting_.begin(), end);
            }
            for (auto& each : due) each.request_stop();
            std::this_thread::sleep_for(100us);
        }
    }

    std::mutex mutex_;
    std::multimap<micros, std::stop_source> waiting_;
    std::jthread thread_{[this](const std::stop_token& over) { run(over); }};
};

/// The message with the server's, which contains only names here.
std::string said(const rowlock::error& failure) {
    return std::string{failure.what()} + " " + std::to_string(failure.native_code()) + " " +
           failure.server_message();
}

std::string word_for(const rowlock::error& failure) {
    std::string word = rowlock::make_error_code(failure.kind()).message();
    for (char& each : word) each = each == ' ' ? '_' : each;
    return word;
}

class worker {
public:
    explicit worker(const settings& with)
        : mode_{with.text("mode")},
          names_{with.number("names")},
          threads_{with.number("threads")},
          count_{with.number("count")},
          hold_us_{with.number("hold_us")},
          seed_{static_cast<unsigned>(std::stoul(with.text("seed")))},
          barging_{with.number("barging") != 0},
          log_{with.text("log")},
          prefix_{with.text("prefix")},
          source_{
              rowlock::open(std::getenv("ROWLOCK_STRESS_URL")).with_tables({.prefix = prefix_})},
          clock_{source_, mode_ == "soak"},
          client_{source_, options(with)} {
        if (mode_ != "soak") return;
        slot_ = static_cast<std::size_t>(with.number("slot"));
        plan_.emplace(std::stoull(with.text("soak_seed")), names_, with.text("only"));
        progress_.emplace(with.text("progress"));
    }

    int run() {
        connect();
        std::puts("ready");
        std::fflush(stdout);
        char byte = 0;
        if (read(STDIN_FILENO, &byte, 1) != 1) return 0;
        std::thread input{[this] { await_end_of_input(); }};
        std::vector<std::thread> threads;
        for (int i = 0; i < threads_; ++i) threads.emplace_back([this, i] { guarded(i); });
        for (auto& each : threads) each.join();
        std::puts("done");
        std::fflush(stdout);
        input.join();
        const auto counted = client_.stats();
        log_.line("# stats: acquired", counted.acquired, "lost", counted.lost, "held", counted.held,
                  "unresolved", counted.unresolved, "connections", counted.connections,
                  "unknown outcomes", counted.unknown_outcomes);
        return failed_ ? 1 : 0;
    }

private:
    /// Connects, on a busy machine with repetitions, since all processes connect at once.
    void connect() {
        const auto end = std::chrono::steady_clock::now() + 30s;
        for (;;) {
            try {
                static_cast<void>(client_.inspect("warm"));
                return;
            } catch (const rowlock::error& failure) {
                if (!failure.retryable() || std::chrono::steady_clock::now() > end) throw;
            }
        }
    }

    rowlock::client_options options(const settings& with) {
        rowlock::client_options options;
        options.ttl = std::chrono::milliseconds{with.number("ttl_ms")};
        options.poll_interval = std::chrono::milliseconds{with.number("poll_ms")};
        options.statement_timeout = 20s;  // longer than a server stalls
        // All workers are on one machine. In tests that kill listeners the listeners must be
        // needed.
        options.wake_ups = with.number("polling") != 0       ? rowlock::wakeup_mode::polling
                           : with.number("by_database") != 0 ? rowlock::wakeup_mode::database
                                                             : rowlock::wakeup_mode::automatic;
        if (with.number("fails_when_cut_off") != 0) {
            options.when_cut_off = rowlock::when_cut_off::fail;
        }
        options.on_event = [this](const rowlock::event& what) { on_event(what); };
        return options;
    }

    void on_event(const rowlock::event& what) {
        using enum rowlock::event_kind;
        if (what.kind == waiting) {
            log_.line("W", what.name, boot_time());
        } else if (what.kind == lease_acquired) {
            log_.line("A", what.name, what.token.value());
        } else if (what.kind == lease_lost || what.kind == outcome_unknown ||
                   what.kind == heartbeat_late || what.kind == heartbeat_failed ||
                   what.kind == queue_entry_lost || what.kind == session_ended) {
            log_.line("#", std::string{to_string(what.kind)}, what.name, what.token.value(),
                      std::string{to_string(what.reason)}, what.message);
        }
    }

    void await_end_of_input() {
        char byte = 0;
        while (read(STDIN_FILENO, &byte, 1) > 0) {
        }
        stop_.request_stop();
    }

    void guarded(int thread) {
        try {
            if (mode_ == "handoff") hand_on(thread);
            if (mode_ == "cancel") change_minds(thread);
            if (mode_ == "soak") follow_the_plan(thread);
        } catch (const std::exception& failure) {
            log_.line("# FAILED in thread", thread, failure.what());
            failed_ = true;
        }
    }

    /// Acquires, holds, releases, `count` times.
    void hand_on(int thread) {
        std::mt19937 random{seed_ + static_cast<unsigned>(thread)};
        const auto name = name_of(thread % names_);
        for (int i = 0; (count_ == 0 || i < count_) && !stop_.stop_requested(); ++i) {
            attempt(thread, name, true, hold_us_,
                    [&] { return client_.acquire(name, stop_.get_token(), how()); });
        }
    }

    /// Cancels at random moments. Holds last about as long as the waits.
    void change_minds(int thread) {
        std::mt19937 random{seed_ + static_cast<unsigned>(thread)};
        for (int i = 0; i < count_ && !stop_.stop_requested(); ++i) {
            const auto name = name_of(pick(random, names_));
            const auto time_out = std::chrono::microseconds{pick(random, 6 * hold_us_)};
            const auto time = pick(random, hold_us_);
            if (pick(random, 2) == 0) {
                attempt(thread, name, time_out > 0us, time,
                        [&] { return client_.try_acquire_for(name, time_out, how()); });
            } else {
                std::stop_source stop;
                stopper_.request(stop, boot_time() + time_out.count());
                attempt(thread, name, true, time,
                        [&] { return client_.acquire(name, stop.get_token(), how()); });
            }
        }
    }

    /// Executes the steps of the plan.
    void follow_the_plan(int thread) {
        const auto number = static_cast<std::size_t>(thread);
        auto& next = progress_->step_of(slot_, number);
        while (!stop_.stop_requested()) {
            const auto one = plan_->at(slot_, number, next++);
            if (plan_->has(one.what)) take(thread, one);
        }
    }

    void take(int thread, const stress::step& one) {
        using enum stress::deed;
        const auto name = name_of(one.name);
        const auto hold = static_cast<int>(one.hold.count());
        rowlock::acquire_options how;
        switch (one.what) {
            case try_once:
                return attempt(thread, name, false, hold,
                               [&] { return client_.try_acquire(name); });
            case timed:
                return attempt(thread, name, true, hold, [&] {
                    return client_.try_acquire_for(name, one.patience, stop_.get_token());
                });
            case barging:
                how.queueing = rowlock::queueing::barging;
                return attempt(thread, name, false, hold, [&] {
                    return client_.try_acquire_for(name, one.patience, stop_.get_token(), how);
                });
            case cancelled: {
                std::stop_source stop;
                stopper_.request(stop, boot_time() + one.patience.count());
                return attempt(thread, name, true, hold,
                               [&] { return client_.acquire(name, stop.get_token()); });
            }
            case deadline:
                how.note = "with a deadline";
                how.max_duration =
                    10ms + std::chrono::ceil<std::chrono::milliseconds>(one.patience);
                return attempt(thread, name, true, 10 * hold,
                               [&] { return acquire_until_deadline(name, how); });
            case look:
                return look_at(name);
            case guarded:
            case acquire:
                guarded_ = one.what == guarded;
                attempt(thread, name, true, hold,
                        [&] { return client_.acquire(name, stop_.get_token()); });
                guarded_ = false;
        }
    }

    /// A process that is stopped meanwhile gets its grants too late, and logs that.
    std::optional<rowlock::lease> acquire_until_deadline(const std::string& name,
                                                         const rowlock::acquire_options& how) {
        try {
            return client_.acquire(name, stop_.get_token(), how);
        } catch (const rowlock::error& failure) {
            const std::string_view what{failure.what()};
            if (!what.starts_with("the lease's own deadline was over")) throw;
            return std::nullopt;
        }
    }

    void look_at(const std::string& name) {
        count_call();
        try {
            (void)client_.inspect(name);
            (void)client_.waiters(name);
        } catch (const rowlock::error& failure) {
            log_.line("# look:", said(failure));
        }
    }

    /// Increments the counter of that name, in a transaction that is fenced with the lease.
    void write_guarded(int thread, const rowlock::lease& lease) {
        thread_local std::unique_ptr<rowlock::sql::connection> db;
        const auto until = std::chrono::steady_clock::now() + patience;
        count_call();
        std::int64_t before = 0;
        bool committing = false;
        const std::string where = " where name = '" + lease.name() + "'";
        try {
            if (!db || !db->alive()) db = source_.connect(until);
            const bool sqlite = source_.speaks() == rowlock::sql::dialect::sqlite;
            db->query(sqlite ? "begin immediate" : "begin", until);
            rowlock::fence(*db, lease);
            before = db->query("select value from " + prefix_ + "soak" + where +
                                   (sqlite ? "" : " for update"),
                               until)
                         .integer(0, 0);
            db->query("update " + prefix_ + "soak set value = value + 1, token = " +
                          std::to_string(lease.token().value()) + where,
                      until);
            committing = true;
            db->query("commit", until);
            log_.line("U", lease.name(), thread, lease.token().value(), before, before + 1, 1);
        } catch (const rowlock::error& failure) {
            if (committing) {
                log_.line("U", lease.name(), thread, lease.token().value(), before, before + 1, 0);
            }
            log_.line("# write:", said(failure));
            db.reset();
        }
    }

    void count_call() {
        if (progress_) ++progress_->calls();
    }

    template <typename Call>
    void attempt(int thread, const std::string& name, bool queues, int time, Call call) {
        count_call();
        const auto called = boot_time();
        log_.line("C", name, thread, called, queues ? 1 : 0);
        std::string result = "none";
        std::optional<rowlock::lease> lease;
        try {
            lease = call();
        } catch (const rowlock::error& failure) {
            result = word_for(failure);
            log_.line("# acquire:", said(failure));
        }
        const auto returned = boot_time();
        if (!lease) {
            log_.line("N", thread, returned, result);
            return;
        }
        const auto begin = clock_.now();
        log_.line("G", name, thread, lease->token().value(), lease->session_id(), lease->grant_id(),
                  called, returned, lease->held() ? begin : 0);
        work(thread, *lease, begin, returned, time);
    }

    void work(int thread, rowlock::lease& lease, micros db_begin, micros believed, int time) {
        if (time > 0) std::this_thread::sleep_for(std::chrono::microseconds{time});
        if (guarded_) write_guarded(thread, lease);
        auto db_end = db_begin;
        const auto read = clock_.now();
        const auto now = boot_time();
        if (lease.held()) {
            db_end = read;
            believed = now;
        }
        log_.line("E", thread, believed, db_end, boot_time());
        std::string result = "ok";
        count_call();
        try {
            lease.release();
        } catch (const rowlock::error& failure) {
            result = word_for(failure);
            log_.line("# release:", said(failure));
        }
        log_.line("R", thread, boot_time(), result);
    }

    [[nodiscard]] rowlock::acquire_options how() const {
        rowlock::acquire_options options;
        if (barging_) options.queueing = rowlock::queueing::barging;
        return options;
    }
    static std::string name_of(int number) { return "lock-" + std::to_string(number); }
    static int pick(std::mt19937& random, int below) {
        return below <= 0 ? 0 : std::uniform_int_distribution{0, below - 1}(random);
    }

    std::string mode_;
    int names_, threads_, count_, hold_us_;
    unsigned seed_;
    bool barging_;
    std::atomic<bool> failed_{false};
    std::stop_source stop_;
    stopper stopper_;
    log_file log_;
    std::string prefix_;
    std::size_t slot_ = 0;
    std::optional<stress::plan> plan_;
    std::optional<stress::progress> progress_;
    static thread_local bool guarded_;  ///< the lease is acquired for write_guarded
    rowlock::sql::connection_source source_;
    database_clock clock_;
    rowlock::client client_;
};

thread_local bool worker::guarded_ = false;

}  // namespace

int main(int count, char** words) {
    try {
        return worker{settings{count, words}}.run();
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "stress_queue_worker: %s\n", failure.what());
        return 2;
    }
}
