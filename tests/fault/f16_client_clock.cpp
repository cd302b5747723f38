// F16: the wall clock of a client's machine is stepped.

#include "fault/holders.hpp"
#include "support/queues.hpp"
#include "support/servers.hpp"
#include <rowlock/client.hpp>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace {

using namespace std::chrono_literals;
using fault::name_of;
using fault::trial;
using std::chrono::milliseconds;
using stress::micros;

constexpr milliseconds ttl = 9s;
constexpr milliseconds heartbeat = 1s;
constexpr milliseconds poll = 300ms;
constexpr micros day = 86'400'000'000;

/// A wall clock for one process, by libfaketime, which leaves CLOCK_BOOTTIME and CLOCK_MONOTONIC
/// alone.
class movable_clock {
public:
    movable_clock()
        : folder_{(std::filesystem::temp_directory_path() / "rowlock-clock-XXXXXX").string()} {
        if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
        step("+0");
    }
    movable_clock(const movable_clock&) = delete;
    movable_clock& operator=(const movable_clock&) = delete;
    ~movable_clock() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    /// The path of the library. Empty if libfaketime is not installed.
    [[nodiscard]] static std::string library() {
        for (const auto& each : std::filesystem::directory_iterator{"/usr/lib"}) {
            const auto path = each.path() / "faketime/libfaketimeMT.so.1";
            if (std::filesystem::exists(path)) return path.string();
        }
        return {};
    }
    [[nodiscard]] std::vector<std::string> environment() const {
        return {std::string{"LD_PRELOAD="} + ROWLOCK_FAULT_BOOT_TIMERS + " " + library(),
                "FAKETIME_TIMESTAMP_FILE=" + folder_ + "/now", "FAKETIME_NO_CACHE=1",
                "FAKETIME_DONT_FAKE_MONOTONIC=1"};
    }
    /// Steps the clock: "+86400" is a day ahead.
    void step(const std::string& by) const {
        std::ofstream{folder_ + "/next"} << by << '\n';
        std::filesystem::rename(folder_ + "/next", folder_ + "/now");
    }

private:
    std::string folder_;
};

/// Checks that only the wall clock was stepped, and that the holder held all the time. Returns how
/// often a lease by the wall clock would have counted as expired, or as lasting for a day.
int check_ticks(trial& in, const fault::holder_diary& diary) {
    micros most_ahead = 0;
    micros most_behind = 0;
    int misjudged = 0;
    const fault::holder_diary::tick* before = nullptr;
    for (const auto& each : diary.ticks) {
        in.must(each.held, "held() was false");
        if (before != nullptr) {
            const micros step = (each.wall - before->wall) - (each.boot - before->boot);
            most_ahead = std::max(most_ahead, step);
            most_behind = std::min(most_behind, step);
            if (std::abs(step) > 1000 * ttl.count()) ++misjudged;
            in.must(each.boot >= before->boot && each.boot - before->boot < day / 2,
                    "the boot-time clock was stepped, too");
        }
        before = &each;
    }
    in.must(most_ahead > day / 2 && most_behind < -day / 2, "the clock was not stepped");
    return misjudged;
}

void step_clocks(trial& in, support::lock_database& database) {
    if (movable_clock::library().empty()) {
        support::miss_program("libfaketime", "libfaketime");
        in.skip("libfaketime is not installed");
        return;
    }
    const int count = in.rounds();
    const movable_clock clock;
    std::vector<fault::holder_role> parts;
    for (int i = 0; i < count; ++i) {
        parts.push_back({.name = name_of(i),
                         .ttl = ttl,
                         .poll = poll,
                         .heartbeat = heartbeat,
                         .environment = clock.environment()});
    }
    fault::holders all{database, parts};
    stress::crew line{database};
    for (const auto& each : parts) line.add(fault::role_of(each));
    line.begin();
    fault::await_places(database, count);

    // A timer by a clock that was set back would not end, which loses the lease within a ttl.
    const std::array<std::pair<const char*, milliseconds>, 3> steps{
        {{"+86400", 2 * heartbeat}, {"-86400", ttl}, {"+0", 2 * heartbeat}}};
    for (const auto& [step, stay] : steps) {
        clock.step(step);
        std::this_thread::sleep_for(stay);
    }
    for (int i = 0; i < count; ++i) {
        const auto each = static_cast<std::size_t>(i);
        const auto token = database.number("select token from rowlock_lock where name = '" +
                                           name_of(i) + "' and session is not null");
        const auto released = stress::boot_time();
        all.end(each);
        auto& next = *line.members()[each];
        const bool served = in.must(next.says("holds", 20s), "the waiter is not served");
        const auto diary = all.diary(each);
        const auto successor = fault::read_diary(next.log());
        in.made();
        in.must(diary.lost == 0, "lost() fired");
        in.must(diary.held_at_the_end && diary.end == "ok", "the release said " + diary.end);
        in.must(token == diary.token, "the token changed");
        in.must(successor.token > diary.token, "the token did not grow");
        if (served) {
            in.took(fault::micros_to_duration(successor.acquired - released),
                    "from the release to the next grant");
        }
        in.unprotected("a lease by the wall clock would be misjudged", check_ticks(in, diary));
    }
    line.stop();
}

const fault::on_databases f16{{.id = "F16",
                               .what = "the clients' wall clock is stepped by a day, both ways",
                               .databases = fault::all_servers,
                               .quick_rounds = 3,
                               .full_rounds = 10,
                               .bound = poll,
                               .run = step_clocks,
                               .control_inside = true}};

}  // namespace
