// F15: the database's clock is stepped, or flaps.

#include "fault/holders.hpp"
#include "fault/users.hpp"
#include "support/own_server.hpp"
#include "support/queues.hpp"
#include "support/servers.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/transaction.hpp>

#include <stdlib.h>

#include <filesystem>
#include <future>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;
using support::server;
using support::soon;

constexpr milliseconds ttl = 2100ms;
constexpr milliseconds heartbeat = ttl / 3;
constexpr milliseconds poll = 500ms;

std::string library() {
    for (const char* path : {"/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
                             "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
                             "/usr/lib/faketime/libfaketimeMT.so.1"}) {
        if (std::filesystem::exists(path)) return path;
    }
    return {};
}

/// A server whose clock a test sets.
class clocked_server {
public:
    static std::unique_ptr<clocked_server> start(server which) {
        if (library().empty()) {
            support::miss_program("libfaketime", "libfaketime");
            return nullptr;
        }
        auto made = std::unique_ptr<clocked_server>{new clocked_server};
        made->step(0s);
        // Without FAKETIME_FORCE_MONOTONIC_FIX=0 each timed wait of MySQL 9 returns at once, and
        // its background threads take a core.
        made->server_ = support::own_server::start(
            which, {.before = {"env", "LD_PRELOAD=" + library(),
                               "FAKETIME_TIMESTAMP_FILE=" + made->folder_.path() + "/clock",
                               "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1",
                               "FAKETIME_DONT_RESET=1", "FAKETIME_FORCE_MONOTONIC_FIX=0"}});
        if (!made->server_) return nullptr;
        // The frame's tables are made on it.
        setenv(support::url_variable(which), made->server_->url().c_str(), 1);
        return made;
    }

    /// Sets the offset from the true time, atomically by a file.
    void step(std::chrono::duration<double> by) {
        const auto text = std::to_string(by.count());
        folder_.write("clock.new", (by.count() < 0 ? text : "+" + text) + "\n");
        std::filesystem::rename(folder_.path() + "/clock.new", folder_.path() + "/clock");
    }
    [[nodiscard]] const std::string& url() const { return server_->url(); }

private:
    clocked_server() = default;

    support::server_folder folder_;
    std::unique_ptr<support::own_server> server_;
};

/// Steps by an hour: all sessions have expired.
void step_forward(trial& in, clocked_server& one, support::lock_database& database) {
    const auto& source = database.source();
    rowlock::client holder{source, database.options({.ttl = ttl})};
    rowlock::client waiter{source, database.options({.ttl = ttl, .poll_interval = poll})};
    const auto held = holder.acquire("job");
    std::promise<steady::time_point> told;
    const std::stop_callback on_loss{held.lost(), [&] { told.set_value(steady::now()); }};
    auto next = std::async(std::launch::async, [&] {
        for (;;) {
            try {
                return support::acquire_soon(waiter, "job");
            } catch (const rowlock::error& failure) {
                // Its own session has expired as well.
                if (failure.kind() != rowlock::errc::lock_lost) throw;
            }
        }
    });
    if (!support::places(database, 1)) throw fault::not_prepared{"no waiter is queued"};
    // Right after a heartbeat the next one is farthest away.
    const auto beats = holder.stats().heartbeats;
    support::eventually([&] { return holder.stats().heartbeats > beats; });
    std::this_thread::sleep_for(heartbeat / 10);
    one.step(1h);
    const auto from = steady::now();
    auto lost = told.get_future();
    if (in.must(lost.wait_for(20s) == std::future_status::ready, "lost() does not fire")) {
        in.took(lost.get() - from, "until lost() fired", heartbeat);
    }
    const auto successor = next.get();
    in.must(successor.token().value() > held.token().value(), "the token did not grow");
    // A holder whose session expired can write without a fence, and not with one.
    const auto app = source.connect(soon());
    app->query("begin", soon());
    try {
        rowlock::fence(*app, held);
        in.violation("the fence accepted a stale holder");
    } catch (const rowlock::error& failure) {
        in.must(failure.kind() == rowlock::errc::lock_lost, failure.what());
    }
    app->query("rollback", soon());
    const auto changed = app->query(
        "update " + database.prefix() + "lock set note = 'stale' where name = 'job'", soon());
    in.unprotected("a stale write without a fence", static_cast<int>(changed.affected()));
    one.step(0s);
    in.made();
}

/// A dead holder's lease lasts longer by the step, and no more.
void step_back(trial& in, clocked_server& one, support::lock_database& database) {
    constexpr auto step = 2s;
    fault::holders doomed{database, {{.name = "job", .ttl = ttl, .poll = poll}}};
    rowlock::client waiter{database.source(), database.options({.poll_interval = poll})};
    auto next =
        std::async(std::launch::async, [&] { return support::acquire_soon(waiter, "job"); });
    if (!support::places(database, 1)) throw fault::not_prepared{"no waiter is queued"};
    const auto token = doomed.diary(0).token;
    doomed[0].kill();
    const auto from = steady::now();
    one.step(-step);
    const auto lease = next.get();
    in.took(steady::now() - from, "from the step back to the next grant", ttl + step + poll);
    in.must(lease.token().value() > token, "the token did not grow");
    one.step(0s);
    in.made();
}

/// Steps back by an hour under a live holder: no loss is reported, and a release frees the lease.
void step_back_under_a_holder(trial& in, clocked_server& one, support::lock_database& database) {
    rowlock::client holder{database.source(),
                           database.options({.ttl = 3 * ttl, .heartbeat = heartbeat})};
    rowlock::client waiter{database.source(),
                           database.options({.ttl = ttl, .poll_interval = poll})};
    auto held = holder.acquire("job");
    one.step(-1h);
    const auto beats = holder.stats().heartbeats;
    in.must(support::eventually([&] { return holder.stats().heartbeats >= beats + 3; }),
            "no heartbeats on a clock that was set back");
    in.must(held.held(), "the lease was lost on a clock that was set back");
    in.must(!waiter.try_acquire("job"), "granted twice on a clock that was set back");
    held.release();
    const auto from = steady::now();
    const auto next = support::acquire_soon(waiter, "job");
    in.took(steady::now() - from, "until a released lease was granted", poll);
    in.must(next.token().value() > held.token().value(), "the token did not grow");
    one.step(0s);
    in.made();
}

/// Steps by half a second to and fro, many times a second.
void flap(trial& in, clocked_server& one, support::lock_database& database) {
    const auto& source = database.source();
    fault::users all{{.sources = {source, source},
                      .options = database.options({.ttl = 6s, .poll_interval = poll})}};
    if (!all.go_on(20, 20s)) throw std::runtime_error{"nothing is granted"};
    const auto until = steady::now() + 3s;
    for (int i = 0; steady::now() < until; ++i) {
        one.step(i % 2 == 0 ? 500ms : -500ms);
        std::this_thread::sleep_for(50ms);
    }
    one.step(0s);
    in.must(all.go_on(20, 20s), "the users do not go on");
    all.stop();
    in.violations(stress::overlapping_beliefs(all.past()));
    in.violations(stress::token_regressions(all.past()));
    for (const auto& [words, each] : all.failures()) {
        in.violation(std::to_string(each.times) + " x " + words + ", first: " + each.first);
    }
    in.made();
    in.note(std::to_string(all.grants()) + " grants on a clock that flaps");
}

void step_clocks(trial& in, server which) {
    const auto one = clocked_server::start(which);
    if (!one) return in.skip("the server's programs are missing");
    const auto backend =
        which == server::postgresql ? support::backend::postgresql : support::backend::mariadb;
    for (int i = 0; i < in.rounds(); ++i) {
        for (const auto fault : {step_forward, step_back, step_back_under_a_holder, flap}) {
            support::lock_database database{backend};
            fault(in, *one, database);
        }
    }
}

void add_row(const char* name, server which) {
    fault::rows().push_back({.id = std::string{"F15/"} + name,
                             .what = "the database's clock steps by an hour and flaps by 500 ms",
                             .quick_rounds = 1,
                             .full_rounds = 30,
                             .bound = heartbeat,
                             .run = [which](trial& in) { step_clocks(in, which); },
                             .control_inside = true,
                             .neighbours = fault::beside::few});
}

const bool registered = [] {
    add_row("postgresql", server::postgresql);
    add_row("mariadb", server::mariadb);
    return true;
}();

}  // namespace
