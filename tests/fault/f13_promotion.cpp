// F13: the primary dies and a standby replaces it.

#include "fault/frame.hpp"
#include "fault/users.hpp"
#include "support/replicated_pair.hpp"
#include "support/unnamed_server.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using stress::boot_time;
using support::replicated_pair;
using support::server;
using commits = support::replicated_pair::commits;

constexpr milliseconds ttl = 3s;
constexpr milliseconds poll = 500ms;
constexpr std::int64_t raise = std::int64_t{1} << 32;
/// Grants that a lagging standby never hears of.
constexpr int unheard = 60;

/// With `lag` the standby has stopped receiving for a while before the primary dies.
void fail_over(trial& in, server which, bool lag, bool named) {
    const auto pair =
        replicated_pair::start(which, lag ? commits::asynchronous : commits::synchronous);
    if (!pair) return in.skip("the server's programs are missing");
    auto source = rowlock::open(pair->url());
    rowlock::migrate(source);
    if (!named) source = support::unnamed(source);
    fault::users all{{.sources = {source, source, source},
                      .options = {.ttl = ttl, .poll_interval = poll, .statement_timeout = 1s}}};
    if (!all.go_on(60, 90s)) throw std::runtime_error{"nothing is granted"};
    if (lag) {
        pair->catch_up();
        pair->hold_back();
        if (!all.go_on(unheard, 90s)) {
            throw std::runtime_error{"nothing is granted any more"};
        }
    }
    pair->kill_primary();
    pair->promote();
    const auto from = boot_time();
    if (!in.must(all.go_on(60, 90s), "the users do not go on")) return;
    in.took(std::chrono::microseconds{all.first_since(from) - from},
            "until the first grant by the promoted standby");
    support::eventually(
        [&] { return all.losses(rowlock::loss_reason::server_changed) == 3 || !named; }, 10s);
    all.stop();
    const auto past = all.past();
    in.violations(stress::token_regressions(past));
    in.made();
    if (!named) return;
    // Without the last commits a lagging standby may grant a lease that is held.
    if (!lag) in.violations(stress::overlapping_beliefs(past));
    in.must_alone(all.losses(rowlock::loss_reason::server_changed) == 3,
                  "not every client noticed that the server changed");
    const auto floor = rowlock::open(pair->standby_url())
                           .connect(support::soon())
                           ->query("select floor from rowlock_token_floor", support::soon())
                           .integer(0, 0);
    in.must(floor == raise, "the floor is " + std::to_string(floor));
    in.note(std::to_string(all.grants()) + " grants");
}

void add_row(const char* name, server which) {
    fault::rows().push_back(
        {.id = std::string{"F13/"} + name,
         .what = "kill -9 of the primary, a standby is promoted, synchronous and lagging",
         .quick_rounds = 2,
         .full_rounds = 20,
         .bound = ttl + poll,
         .run =
             [which](trial& in) {
                 for (int i = 0; i < in.rounds(); ++i) fail_over(in, which, i % 2 == 1, true);
             },
         .control = [which](trial& in) { fail_over(in, which, true, false); },
         .neighbours = fault::beside::none});
}

const bool registered = [] {
    add_row("postgresql", server::postgresql);
    add_row("mariadb", server::mariadb);
    return true;
}();

}  // namespace
