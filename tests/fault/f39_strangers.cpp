// F39: another role of the database and another local user, which know all names and ids, send
// notifications and datagrams, and listen. No client believes them or queries the database more
// often, and each waiter is served in time.

#include "fault/frame.hpp"
#include "support/queues.hpp"
#include "support/stranger.hpp"
#include <rowlock/client.hpp>

#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using rowlock::client;
using steady = std::chrono::steady_clock;

constexpr auto poll = 1s;
constexpr std::int64_t forged_token = 4'000'000'000'000'000'000;

rowlock::client_options options_of(const support::lock_database& database) {
    auto options = database.options({.poll_interval = poll});
    options.wake_ups = rowlock::wakeup_mode::automatic;
    return options;
}

struct scene {
    scene(support::lock_database& database_, bool knows_the_secret_)
        : database{database_},
          knows_the_secret{knows_the_secret_},
          holder{database.source(), options_of(database)},
          waiter{database.source(), options_of(database)},
          stranger{database} {}

    support::lock_database& database;
    const bool knows_the_secret;
    client holder, waiter;
    support::stranger stranger;
    std::vector<std::string> overheard{};
};

/// One hand-over, with forged wake-ups before and during it.
void hand_over(trial& in, scene& on) {
    auto held = on.holder.acquire("job");
    auto waiting =
        std::async(std::launch::async, [&] { return support::acquire_soon(on.waiter, "job"); });
    if (!in.must(support::places(on.database, 1), "the waiter is not queued")) return;
    const auto to = support::address_of(
        on.database, rowlock::session_id{on.database.number("select session from rowlock_ticket")});
    const auto grant_id =
        rowlock::grant_id{on.database.number("select grant_id from rowlock_ticket")};
    const bool postgresql = on.database.speaks() == rowlock::sql::dialect::postgresql;
    if (postgresql) on.stranger.listen(to);
    const auto texts =
        on.knows_the_secret
            ? std::vector{rowlock::wakeup::encode_wakeup({grant_id, forged_token}, to.secret)}
            : support::lies({grant_id, forged_token}, on.overheard);
    in.must(on.stranger.say(to, texts, 3), "no forged message could be sent");
    if (waiting.wait_for(on.knows_the_secret ? 1s : 0s) == std::future_status::ready) {
        in.violation("a forged wake-up was believed: token " + to_string(waiting.get().token()));
        return;
    }
    std::jthread talk{[&](const std::stop_token& over) {
        while (!over.stop_requested()) on.stranger.say(to, texts);
    }};
    const auto start = steady::now();
    held.release();
    const auto got = waiting.get();
    in.took(steady::now() - start);
    talk.request_stop();
    talk.join();
    in.must(got.held() && got.token() > held.token() && got.token().value() < forged_token,
            "the waiter has a token that was never granted");
    if (!postgresql) return;
    for (auto& said : on.stranger.heard()) {
        if (on.overheard.size() < 8) on.overheard.push_back(std::move(said));
    }
}

void talk_to_waiters(trial& in, support::lock_database& database) {
    scene on{database, false};
    for (int round = 0; round < in.rounds(); ++round) {
        hand_over(in, on);
        in.made();
    }
    in.must(on.waiter.stats().lost == 0, "a forged message cost a lease");
}

/// The control: a program that can read the session's row is believed.
void talk_with_the_secret(trial& in, support::lock_database& database) {
    scene on{database, true};
    hand_over(in, on);
}

const fault::on_databases f39{{.id = "F39",
                               .what = "strangers that know all ids forge grants",
                               .databases = fault::all_servers,
                               .quick_rounds = 10,
                               .full_rounds = 300,
                               .bound = poll + 1s,
                               .run = talk_to_waiters,
                               .control = talk_with_the_secret}};

// Waiters on an SQLite file trust no wake-up without a check, so that no control exists.
const fault::on_databases f39_file{{.id = "F39",
                                    .what = "strangers that know all ids forge grants",
                                    .databases = {support::backend::sqlite},
                                    .quick_rounds = 10,
                                    .full_rounds = 300,
                                    .bound = poll + 1s,
                                    .run = talk_to_waiters}};

}  // namespace
