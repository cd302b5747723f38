// F40: holders that leave child programs behind, exec one, or go to the background, and die.

#include "fault/frame.hpp"
#include "stress/crew.hpp"
#include <rowlock/advisory_lock.hpp>
#include <rowlock/client.hpp>

#include <signal.h>

#include <array>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds ttl = 2400ms;
constexpr std::chrono::milliseconds poll = 500ms;
/// The time in which the server detects a closed socket.
constexpr std::chrono::milliseconds at_once = 2s;

/// The program that a holder left behind, ended with this object.
class left_behind {
public:
    explicit left_behind(const std::string& log) { std::ifstream{log} >> id_; }
    left_behind(const left_behind&) = delete;
    left_behind& operator=(const left_behind&) = delete;
    ~left_behind() {
        if (id_ > 1) ::kill(id_, SIGKILL);
    }
    [[nodiscard]] bool lives() const { return id_ > 1 && ::kill(id_, 0) == 0; }

private:
    pid_t id_ = 0;
};

void die_with_children(trial& in, support::lock_database& database, bool leaking) {
    constexpr std::array ways{"child", "daemon", "exec"};
    rowlock::client locks{database.source(), database.options({.poll_interval = poll})};
    std::optional<rowlock::advisory_client> advisory;
    if (database.speaks() != rowlock::sql::dialect::sqlite) advisory.emplace(database.source());
    for (int round = 0; round < in.rounds(); ++round) {
        const std::string how = ways.at(static_cast<std::size_t>(round) % ways.size());
        stress::role part;
        part.program = ROWLOCK_FAULT_PARENT;
        part.ttl_ms = static_cast<int>(ttl.count());
        part.words = {"how=" + how, leaking ? "leak=1" : "leak=0"};
        stress::crew crew{database};
        crew.add(part);
        crew.begin();
        auto& parent = *crew.members().front();
        if (!parent.says("holds", 30s)) throw std::runtime_error{"no holder"};
        const left_behind program{parent.log()};
        if (advisory && advisory->try_lock(database.prefix() + "bound")) {
            in.violation("the lock was free while its holder lived");
        }
        const auto died = steady::now();
        if (how == "exec") {
            parent.stop();
        } else {
            parent.kill();
        }
        if (advisory) {
            const auto bound = advisory->try_lock_for(database.prefix() + "bound",
                                                      leaking ? at_once : 5 * at_once);
            in.must(bound.has_value(),
                    "bound to a connection, kept by a program left behind: " + how);
            if (bound) in.took(steady::now() - died, how + ", until the lock was free", at_once);
        }
        in.must(program.lives(), "the program left behind is not there: nothing was tried");
        if (!leaking) {
            const auto lease = locks.try_acquire_for("lease", ttl + 10s);
            in.must(lease.has_value(), "the lease was never free");
            in.took(steady::now() - died, how + ", until the lease was free");
        }
        in.made();
    }
}

const fault::on_databases f40{
    {.id = "F40",
     .what = "holders start programs, exec, go to the background, and die",
     .databases = fault::all_servers,
     .quick_rounds = 3,
     .full_rounds = 60,
     .bound = ttl + poll,
     .run = [](trial& in,
               support::lock_database& database) { die_with_children(in, database, false); },
     .control = [](trial& in,
                   support::lock_database& database) { die_with_children(in, database, true); }}};

const fault::on_databases f40_sqlite{
    {.id = "F40",
     .what = "holders start programs, exec, go to the background, and die",
     .databases = {support::backend::sqlite},
     .quick_rounds = 3,
     .full_rounds = 60,
     .bound = ttl + poll,
     .run = [](trial& in, support::lock_database& database) {
         die_with_children(in, database, false);
     }}};

}  // namespace
