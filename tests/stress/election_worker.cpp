// A process of the stress test of terms: a client that is a candidate of an election, or observes
// it, and writes down what it believes or sees. crew.cpp starts it.
//
//   stress_election_worker KEY=VALUE…     the URL in the environment, ROWLOCK_STRESS_URL
//
// mode=leads: campaigns, and leads until it loses the office; mode=ignores: the control, which goes
// on as leader after a loss; mode=watches: an observer; mode=keeps: the control, which overlooks
// that there is no leader. board=FILE first=NUMBER of its slot on the board. Prints "ready", starts
// at the first line of its standard input, and stops when that is closed.

#include "stress/board.hpp"
#include "stress/history.hpp"
#include "stress/log_file.hpp"
#include <rowlock/client.hpp>
#include <rowlock/election.hpp>
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stop_token>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using stress::boot_time;
using stress::log_file;
using stress::micros;
using stress::wall_time;

constexpr const char* office_name = "office";

class candidate {
public:
    candidate(rowlock::client& locks, stress::board& board, log_file& log, std::size_t slot,
              bool ignores_loss)
        : board_{board},
          log_{log},
          mine_{board, stress::counted_names, slot},
          name_{"candidate-" + std::to_string(slot)},
          office_{locks,
                  office_name,
                  {.value = name_, .priority = static_cast<int>(slot % priorities)}},
          proclaims_{slot % 2 == 0},
          ignores_loss_{ignores_loss} {}

    void turn(const std::stop_token& stop) {
        office_.lead(stop, [&](rowlock::leadership& term) { lead(term, stop); });
    }

private:
    static constexpr std::size_t priorities = 3;
    static constexpr int turns_before_it_proclaims = 50;

    /// Written before the step that ends the term, whatever that is.
    class end_of_belief {
    public:
        explicit end_of_belief(candidate& of) : of_{of} {}
        end_of_belief(const end_of_belief&) = delete;
        end_of_belief& operator=(const end_of_belief&) = delete;
        ~end_of_belief() {
            of_.log_.line("E", boot_time());
            of_.mine_.set(0);
        }

    private:
        candidate& of_;
    };

    void lead(rowlock::leadership& term, const std::stop_token& stop) {
        until_ = 0;
        if (!renew(term)) return;
        const end_of_belief ended{*this};
        mine_.set_all();
        ++board_.grants;
        for (int turns = 0; !stop.stop_requested() && renew(term); ++turns) {
            if (turns == turns_before_it_proclaims && proclaims_) {
                const auto value = name_ + "-again";
                log_.line("P", value);
                term.proclaim(value);
                log_.line("V", wall_time());
            }
            mine_.check();
            std::this_thread::sleep_for(1ms);
        }
        if (!term.held()) ++board_.lost;
    }

    /// Writes down until when it may believe. False if it may not any more.
    bool renew(const rowlock::leadership& term) {
        // The clock first: a pause between the two must shorten the belief.
        const auto now = boot_time();
        auto left = std::chrono::microseconds{term.lease().remaining()}.count();
        if (left <= 0 && !ignores_loss_) return false;
        constexpr micros moment = 20'000;
        if (left <= 0) left = moment;
        const auto until = now + left;
        if (until_ == 0) {
            log_.line("L", term.term().value(), name_, now, until, wall_time());
            until_ = until;
        }
        // remaining() has milliseconds.
        constexpr micros rounding = 2'000;
        if (until > until_ + rounding) {
            log_.line("U", until);
            until_ = until;
        }
        mine_.last_until(until);
        return true;
    }

    stress::board& board_;
    log_file& log_;
    stress::held_belief mine_;
    const std::string name_;
    rowlock::election office_;
    const bool proclaims_;
    const bool ignores_loss_;
    micros until_ = 0;
};

class observer {
public:
    observer(rowlock::client& locks, log_file& log, bool keeps_leaders)
        : log_{log},
          keeps_leaders_{keeps_leaders},
          changes_{rowlock::election{locks, office_name}.observe({.poll_interval = 20ms})} {}

    void turn(const std::stop_token& stop) {
        const auto called = wall_time();
        const auto seen = changes_.next_for(100ms, stop);
        if (stop.stop_requested()) return;  // perhaps before it looked
        const auto returned = wall_time();
        if (!seen || (keeps_leaders_ && !seen->leader)) return log_.line("O", called, returned);
        const auto& leader = seen->leader;
        log_.line("S", called, returned, (leader ? leader->term : seen->term).value(),
                  leader ? 1 : 0, leader ? leader->value : "");
    }

private:
    log_file& log_;
    const bool keeps_leaders_;
    rowlock::election_observer changes_;
};

/// Takes turns until it is stopped.
template <typename Part>
void act(Part part, stress::board& board, log_file& log, const std::stop_token& stop) {
    while (!stop.stop_requested()) {
        try {
            part.turn(stop);
        } catch (const rowlock::error& failure) {
            const auto kind = failure.kind();
            log.line("#", failure.what());
            if (failure.retryable() || kind == rowlock::errc::outcome_unknown ||
                kind == rowlock::errc::lock_lost) {
                continue;
            }
            std::fprintf(stderr, "stress_election_worker: %s\n", failure.what());
            ++board.failures;
        }
    }
}

int run(std::map<std::string, std::string>& words) {
    const auto number = [&](const char* key) { return std::stoi(words.at(key)); };
    const stress::mapped_board board{words.at("board")};
    log_file log{words.at("log")};
    rowlock::client_options options;
    options.ttl = std::chrono::milliseconds{number("ttl_ms")};
    options.poll_interval = std::chrono::milliseconds{number("poll_ms")};
    rowlock::client locks{rowlock::open(std::getenv("ROWLOCK_STRESS_URL"))
                              .with_tables({.prefix = words.at("prefix")}),
                          options};
    static_cast<void>(locks.is_locked("none"));
    std::puts("ready");
    std::fflush(stdout);
    char byte = 0;
    if (read(STDIN_FILENO, &byte, 1) != 1) return 0;
    const auto& mode = words.at("mode");
    const std::jthread thread{[&](const std::stop_token& stop) {
        if (mode == "watches" || mode == "keeps") {
            return act(observer{locks, log, mode == "keeps"}, *board, log, stop);
        }
        const auto slot = static_cast<std::size_t>(number("first"));
        act(candidate{locks, *board, log, slot, mode == "ignores"}, *board, log, stop);
    }};
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    std::map<std::string, std::string> words;
    for (int i = 1; i < count; ++i) {
        const std::string word = arguments[i];
        const auto at = word.find('=');
        words[word.substr(0, at)] = word.substr(at + 1);
    }
    try {
        return run(words);
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "stress_election_worker: %s\n", failure.what());
        return 1;
    }
}
