// A process of the fault suite that holds one lock, and writes into a table with it, fenced and
// not. Started by crew.cpp, as the stress tests' workers.
//
//   fault_holder KEY=VALUE…     the URL in the environment, ROWLOCK_STRESS_URL
//
// Prints "ready", starts at the first line of its standard input, prints "holds" when it holds, and
// releases and ends when its input is closed. If it detects that it was stopped for longer than
// `gap_ms`, it writes at once, as a holder without knowledge of its loss would. Its log has the
// lines of stress::history, and its own notes:
//
//   # woke AT HELD             its first action; HELD: the result of held() then
//   # wrote KIND RESULT        f: fenced, u: unfenced
//   # lost AT
//   # clock BOOT REAL HELD     once a tick: the clocks of this process, in microseconds
//   # end HELD RESULT          of the release

#include "stress/history.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>
#include <rowlock/transaction.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <stop_token>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using stress::boot_time;
using stress::micros;

using settings = std::map<std::string, std::string>;

settings read_settings(int count, char** words) {
    settings all;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        const auto at = word.find('=');
        all[word.substr(0, at)] = word.substr(at + 1);
    }
    if (const char* url = std::getenv("ROWLOCK_STRESS_URL")) all["url"] = url;
    return all;
}

micros wall_time() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<micros>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

std::string word_for(const rowlock::error& failure) {
    std::string word = rowlock::make_error_code(failure.kind()).message();
    for (char& each : word) each = each == ' ' ? '_' : each;
    return word;
}

class holder {
public:
    explicit holder(const settings& with)
        : name_{with.at("name")},
          table_{with.at("table")},
          gap_{1000 * std::stoll(with.at("gap_ms"))},
          tick_{std::chrono::milliseconds{std::stoi(with.at("tick_ms"))}},
          log_{open(with.at("log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)},
          source_{rowlock::open(with.at("url")).with_tables({.prefix = with.at("prefix")})},
          db_{source_.connect(soon())},
          client_{source_, options(with)} {
        if (log_ < 0) throw std::runtime_error{"cannot write the log"};
    }
    holder(const holder&) = delete;
    holder& operator=(const holder&) = delete;
    ~holder() { close(log_); }

    int run() {
        [[maybe_unused]] const auto there = client_.inspect("warm");  // connected
        say("ready");
        char byte = 0;
        if (read(STDIN_FILENO, &byte, 1) != 1) return 0;
        const auto called = boot_time();
        line("C " + name_ + " 0 " + std::to_string(called) + " 1");
        auto lease = client_.acquire(name_);
        const auto acquired = boot_time();
        line("G " + name_ + " 0 " + std::to_string(lease.token().value()) + " " +
             to_string(lease.session_id()) + " " + to_string(lease.grant_id()) + " " +
             std::to_string(called) + " " + std::to_string(acquired) + " 0");
        const std::stop_callback told{lease.lost(),
                                      [&] { line("# lost " + std::to_string(boot_time())); }};
        write_with(lease);
        say("holds");
        hold(lease);
        end(lease);
        return 0;
    }

private:
    static rowlock::sql::deadline soon() { return std::chrono::steady_clock::now() + 20s; }

    static rowlock::client_options options(const settings& with) {
        rowlock::client_options options;
        options.ttl = std::chrono::milliseconds{std::stoi(with.at("ttl_ms"))};
        options.heartbeat = std::chrono::milliseconds{std::stoi(with.at("heartbeat_ms"))};
        options.poll_interval = std::chrono::milliseconds{std::stoi(with.at("poll_ms"))};
        options.wake_ups = rowlock::wakeup_mode::database;
        return options;
    }

    static void say(const char* word) {
        std::puts(word);
        std::fflush(stdout);
    }

    /// One write for each line, so that a killed process leaves only whole lines.
    void line(std::string text) const {
        text += '\n';
        if (::write(log_, text.data(), text.size()) < 0) std::abort();
    }

    void hold(const rowlock::lease& lease) {
        auto last = boot_time();
        auto told = last;
        pollfd input{STDIN_FILENO, POLLIN, 0};
        for (bool over = false; !over;) {
            over = poll(&input, 1, 1) != 0;
            // Read once a turn: a stop between two reads would go unnoticed.
            const auto now = boot_time();
            const bool woke = now - last > gap_;
            last = now;
            if (woke) {
                const bool held = lease.held();
                line("# woke " + std::to_string(now) + (held ? " 1" : " 0"));
                write_with(lease);
                last = boot_time();
            }
            if (now - told < std::chrono::microseconds{tick_}.count()) continue;
            told = now;
            line("# clock " + std::to_string(now) + " " + std::to_string(wall_time()) +
                 (lease.held() ? " 1" : " 0"));
        }
    }

    /// Writes as an application that trusts its lock does.
    void write_with(const rowlock::lease& lease) {
        if (table_.empty()) return;
        const bool sqlite = source_.speaks() == rowlock::sql::dialect::sqlite;
        std::string fenced = "ok";
        try {
            begin(sqlite ? "begin immediate" : "begin");
            rowlock::fence(*db_, lease);
            insert('f', lease);
            db_->query("commit", soon());
        } catch (const rowlock::error& failure) {
            fenced = word_for(failure);
            db_->query("rollback", soon());
        }
        line("# wrote f " + fenced);
        insert('u', lease);
        line("# wrote u ok");
    }

    /// Reconnects if necessary: MySQL closes a connection that has fenced and is idle for long.
    void begin(std::string_view text) {
        try {
            db_->query(text, soon());
        } catch (const rowlock::error&) {
            if (db_->alive()) throw;
            db_ = source_.connect(soon());
            db_->query(text, soon());
        }
    }

    void insert(char kind, const rowlock::lease& lease) {
        db_->query("insert into " + table_ + " (kind, name, token) values ('" + kind + "', '" +
                       name_ + "', " + std::to_string(lease.token().value()) + ")",
                   soon());
    }

    void end(rowlock::lease& lease) {
        const bool held = lease.held();
        const auto called = boot_time();
        line("E 0 " + std::to_string(called) + " 0 " + std::to_string(called));
        std::string result = "ok";
        try {
            lease.release();
        } catch (const rowlock::error& failure) {
            result = word_for(failure);
        }
        line("R 0 " + std::to_string(boot_time()) + " " + result);
        line(std::string{"# end "} + (held ? "1 " : "0 ") + result);
    }

    std::string name_;
    std::string table_;
    micros gap_;
    std::chrono::milliseconds tick_;
    int log_;
    rowlock::sql::connection_source source_;
    std::unique_ptr<rowlock::sql::connection> db_;
    rowlock::client client_;
};

}  // namespace

int main(int count, char** words) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if it is stopped then
    try {
        return holder{read_settings(count, words)}.run();
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "fault_holder: %s\n", failure.what());
        return 2;
    }
}
