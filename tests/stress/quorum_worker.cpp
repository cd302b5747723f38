// A process of the stress test of quorum locks: its threads take one name again and again, and
// check on the board that no other thread believes at the same time, and that the tokens rise.
//
//   stress_quorum_worker BOARD FIRST SEED TTL_MS     the members' URLs in ROWLOCK_STRESS_URLS, one
//   a line
//
// With SEED 0 it believes without asking: the control.

#include "stress/board.hpp"
#include "stress/history.hpp"
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>
#include <rowlock/quorum.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using stress::boot_time;

constexpr std::size_t the_name = stress::counted_names;

/// Of a lock that is held.
void count_grant(stress::board& board, const rowlock::quorum_lease& held) {
    const auto token = held.token().value();
    ++board.grants;
    const auto now = boot_time();
    const auto before = board.latest_grant.exchange(now);
    auto longest = board.longest_pause.load();
    while (before != 0 && now - before > longest &&
           !board.longest_pause.compare_exchange_weak(longest, now - before)) {
    }
    // A token is fixed before its holder believes: one that believed before has a smaller one.
    auto greatest = board.latest_term.load();
    do {
        if (token <= greatest) {
            // Unless this thread was stopped since it looked: then the other may have come later.
            if (held.held()) ++board.failures;
            return;
        }
    } while (!board.latest_term.compare_exchange_weak(greatest, token));
}

void work(rowlock::quorum_client& locks, stress::board& board, std::size_t slot, unsigned seed,
          std::chrono::microseconds learns_within) {
    const auto margin = learns_within.count();
    std::minstd_rand random{seed * 7919U + static_cast<unsigned>(slot)};
    for (;;) {
        try {
            const auto held = locks.acquire("job");
            stress::held_belief mine{board, the_name, slot};
            const auto refresh = [&] {
                const auto now = boot_time();  // before what is left is read
                const auto left = std::chrono::microseconds{held.remaining()}.count();
                mine.looked(now);
                mine.last_until(left > 0 ? now + left : 0);
                return left > 0;
            };
            if (!refresh()) {
                ++board.lost;
                continue;
            }
            mine.set_all();
            mine.check(margin);
            if (held.held()) count_grant(board, held);
            // Mostly short, sometimes beyond the ttl.
            const auto until =
                std::chrono::steady_clock::now() +
                std::chrono::milliseconds{random() % 50 == 0 ? random() % 5000 : random() % 8};
            while (std::chrono::steady_clock::now() < until) {
                if (!refresh()) {
                    ++board.lost;
                    break;
                }
                mine.check(margin);
                std::this_thread::sleep_for(1ms);
            }
        } catch (const rowlock::error& failure) {
            std::fprintf(stderr, "%zu: %s\n", slot, failure.what());
            std::this_thread::sleep_for(20ms);
        }
    }
}

/// The control.
void believe(stress::board& board, std::size_t slot) {
    for (;;) {
        stress::held_belief mine{board, the_name, slot};
        mine.last_until(boot_time() + 1'000'000);
        mine.set_all();
        mine.check();
        std::this_thread::sleep_for(1ms);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 64;
    stress::mapped_board board{argv[1]};
    const auto first = static_cast<std::size_t>(std::stoul(argv[2]));
    const auto seed = static_cast<unsigned>(std::stoul(argv[3]));
    const std::chrono::milliseconds ttl{std::stoi(argv[4])};
    if (seed == 0) believe(*board, first);
    std::vector<rowlock::sql::connection_source> members;
    std::istringstream urls{std::getenv("ROWLOCK_STRESS_URLS")};
    for (std::string url; std::getline(urls, url);) members.push_back(rowlock::open(url));
    const auto margin = ttl / 6;
    rowlock::quorum_client locks{
        members,
        {.member = {.ttl = ttl,
                    .margin = margin,
                    .statement_timeout = std::max<std::chrono::milliseconds>(ttl / 3, 300ms)}}};
    const std::jthread clock{[&] {
        for (;; std::this_thread::sleep_for(1ms)) {
            for (const auto slot : {first, first + 1}) {
                board->beliefs[the_name][slot].ran = boot_time();
            }
        }
    }};
    std::jthread second{[&] { work(locks, *board, first + 1, seed, margin); }};
    work(locks, *board, first, seed, margin);
}
