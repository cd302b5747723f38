#include "plan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <stdexcept>

namespace rowlock::sim {
namespace {

using std::chrono::milliseconds;

milliseconds between(random& dice, i64 low, i64 high) {
    return milliseconds{dice.between(low, high)};
}

/// An index, with these weights.
std::size_t pick(random& dice, std::initializer_list<u64> weights) {
    u64 sum = 0;
    for (const u64 weight : weights) sum += weight;
    u64 rest = dice.below(sum);
    std::size_t chosen = 0;
    for (const u64 weight : weights) {
        if (rest < weight) break;
        rest -= weight;
        ++chosen;
    }
    return chosen;
}

class drawer {
public:
    drawer(u64 seed, climate kind, const item_set& without)
        : climate_{kind},
          without_{without},
          dice_{random{seed}.next() ^ 0x5eed},
          server_dice_{random{seed}.next() ^ 0x5e4fe4} {
        if (climate_ == climate::mixed && dice_.chance(0.1)) climate_ = climate::slow_answers;
        if (climate_ == climate::mixed && server_dice_.chance(0.08)) climate_ = climate::calm;
    }

    plan draw() {
        plan_.scheduling = draw_policy();
        draw_mix();
        plan_.ttl = dice_.between(300, 2000) * ms;
        const bool is_mixed = climate_ == climate::mixed;
        drift_ = climate_ == climate::calm || dice_.chance(0.5) ? 0 : 0.02;
        stalls_ = is_mixed && dice_.chance(0.3);
        plan_.heals_at = dice_.between(1, 6) * plan_.ttl / 2;
        if (climate_ == climate::calm && server_dice_.chance(0.6)) enforce_limits();
        one_host_ = dice_.chance(0.6);
        const i64 count = dice_.between(2, 6);
        for (i64 i = 0; i < count; ++i) {
            const bool stays = keeps();
            auto drawn = draw_process(i);
            if (stays) plan_.processes.push_back(std::move(drawn));
        }
        if (climate_ != climate::calm) draw_faults();
        draw_server();
        plan_.one_name = server_dice_.chance(0.5);
        plan_.items = last_;
        return std::move(plan_);
    }

private:
    [[nodiscard]] bool keeps() { return !without_.contains(++last_); }

    policy draw_policy() {
        constexpr std::array chances{0.02, 0.1, 0.3, 0.8};
        policy drawn;
        drawn.switch_at_lock = chances[dice_.below(chances.size())];
        drawn.switch_at_unlock = dice_.chance(0.5) ? 0 : drawn.switch_at_lock / 2;
        drawn.spurious_wake_up = dice_.chance(0.3) ? 0.05 : 0;
        drawn.priority_changes = dice_.chance(0.3) ? static_cast<int>(dice_.between(1, 12)) : 0;
        return drawn;
    }

    /// Mostly not at all.
    u64 sometimes(u64 most) { return dice_.chance(0.3) ? dice_.below(most + 1) : 0; }

    /// What this seed does much of, and what not at all.
    void draw_mix() {
        plan_.names = static_cast<int>(dice_.between(1, 4));
        users_ = dice_.between(1, 3);
        operations_ = dice_.between(8, 40);
        thinks_ = dice_.unit();
        longest_think_ = dice_.skewed(1 * ms, 300 * ms);
        longest_work_ = dice_.skewed(1 * ms, 200 * ms);
        works_long_ = dice_.chance(0.3) ? 0 : 0.3 * dice_.unit();
        fences_ = dice_.chance(0.5) ? 0 : 0.5 * dice_.unit();
        changes_mode_ = dice_.chance(0.5) ? 0 : 0.5;
        leases_ = 1 + dice_.below(8);
        several_ = dice_.below(4);
        modes_ = dice_.below(4);
        permits_ = dice_.below(4);
        mutexes_ = dice_.below(4);
        offices_ = sometimes(3);
        runs_ = sometimes(3);
        adoptions_ = sometimes(4);
        requests_ = sometimes(2);
        recursions_ = sometimes(3);
        several_modes_ = sometimes(3);
        latches_ = sometimes(4);
        barriers_ = sometimes(6);
        forces_ = sometimes(2);
        limits_ = sometimes(2);
        watches_ = sometimes(3);
        extends_ = dice_.chance(0.5) ? 0.5 : 0;
        chooses_ = dice_.chance(0.5) ? 0.5 : 0;
        owners_ = dice_.chance(0.3);
        plan_.parties = dice_.between(1, 3);
        plan_.losses_count = dice_.chance(0.2);
        once_ = dice_.below(6);
        for_a_time_ = dice_.below(4);
        barging_ = dice_.below(3);
        limited_ = dice_.below(3);
        patient_ = 1 + dice_.below(6);
    }

    client_options draw_options() {
        client_options drawn;
        drawn.ttl = milliseconds{plan_.ttl / ms};
        drawn.poll_interval = between(dice_, 50, 1000);
        drawn.statement_timeout = between(dice_, 150, 600);
        constexpr std::array modes{wakeup_mode::automatic, wakeup_mode::database,
                                   wakeup_mode::polling};
        drawn.wake_ups = modes[pick(dice_, {7, 2, 1})];
        drawn.retry.total = between(dice_, 500, 3000);
        if (dice_.chance(0.2)) drawn.when_cut_off = when_cut_off::fail;
        // A round of it enforces the limits.
        if (dice_.chance(limits_ > 0 ? 0.6 : 0.3)) {
            drawn.reaper.emplace().interval = between(dice_, 100, 1000);
        }
        drawn.program = "simulated";
        return drawn;
    }

    operation draw_operation() {
        operation drawn;
        constexpr std::array kinds{hold_kind::lease,
                                   hold_kind::several,
                                   hold_kind::shared_mutex,
                                   hold_kind::several_modes,
                                   hold_kind::permits,
                                   hold_kind::mutex,
                                   hold_kind::recursive_mutex,
                                   hold_kind::office,
                                   hold_kind::run,
                                   hold_kind::offered_lease,
                                   hold_kind::latch,
                                   hold_kind::barrier,
                                   hold_kind::request,
                                   hold_kind::force,
                                   hold_kind::limit,
                                   hold_kind::watch};
        drawn.kind =
            kinds[pick(dice_, {leases_, several_, modes_, several_modes_, permits_, mutexes_,
                               recursions_, offices_, runs_, adoptions_, latches_, barriers_,
                               requests_, forces_, limits_, watches_})];
        constexpr std::array targets{hold_kind::lease, hold_kind::permits, hold_kind::shared_mutex};
        drawn.target = targets[pick(dice_, {1 + leases_, permits_, modes_ + several_modes_})];
        constexpr std::array manners{manner::once, manner::for_a_time, manner::barging,
                                     manner::limited, manner::patient};
        const bool is_lease = drawn.kind == hold_kind::lease;
        const bool has_limit = is_lease || drawn.kind == hold_kind::permits;
        drawn.how = manners[pick(dice_, {once_, for_a_time_, is_lease ? barging_ : 0,
                                         has_limit ? limited_ : 0, patient_})];
        draw_names(drawn);
        draw_modes(drawn);
        drawn.permits = 1 + static_cast<i64>(pick(dice_, {7, 2, 1}));
        if (dice_.chance(0.5)) drawn.gives_back = dice_.between(0, drawn.permits - 1);
        if (dice_.chance(extends_)) drawn.extension = dice_.between(100, 2000) * ms;
        drawn.depth = static_cast<int>(dice_.between(1, 3));
        if (dice_.chance(thinks_)) drawn.think = dice_.skewed(0, longest_think_);
        drawn.patience =
            dice_.chance(0.5) ? dice_.between(1, 1500) * ms : dice_.skewed(1 * ms, 500 * ms);
        drawn.max_duration = dice_.between(100, 2000) * ms;
        drawn.work = dice_.chance(works_long_) ? dice_.between(0, 3 * plan_.ttl)
                                               : dice_.skewed(0, longest_work_);
        // Past the deadline from before.
        if (drawn.extension && drawn.how == manner::limited) {
            drawn.work = std::max(drawn.work, drawn.max_duration * 5 / 4);
        }
        drawn.listens = dice_.chance(0.9);
        drawn.stops = dice_.chance(0.7);
        drawn.fences = dice_.chance(fences_);
        constexpr std::array endings{ending::release, ending::destructor, ending::on_commit,
                                     ending::offer};
        drawn.end = endings[pick(dice_, {6, 3, is_lease && fences_ > 0 ? 1U : 0U,
                                         is_lease && adoptions_ > 0 ? 6U : 0U})];
        // Another thread's object of this name may outlive that of its owner.
        if (drawn.kind == hold_kind::recursive_mutex) drawn.end = ending::release;
        drawn.priority = static_cast<int>(dice_.below(3));
        drawn.chooses = dice_.chance(chooses_);
        return drawn;
    }

    /// Half of the time "a", so that clients meet.
    void draw_names(operation& of) {
        const auto count = static_cast<u64>(plan_.names);
        const bool is_several =
            of.kind == hold_kind::several || of.kind == hold_kind::several_modes;
        const u64 wanted = is_several ? 1 + dice_.below(count) : 1;
        const u64 first = dice_.chance(0.5) ? 0 : dice_.below(count);
        for (u64 i = 0; i < wanted; ++i) {
            of.names.emplace_back(1, static_cast<char>('a' + (first + i) % count));
        }
    }

    void draw_modes(operation& of) {
        constexpr std::array modes{lock_mode::shared, lock_mode::upgradeable, lock_mode::exclusive};
        for (std::size_t i = 0; i < of.names.size(); ++i) {
            of.modes.push_back(modes[pick(dice_, {4, 2, 4})]);
        }
        of.mode = of.modes.front();
        if (!dice_.chance(changes_mode_)) return;
        if (of.mode == lock_mode::exclusive) {
            of.next_mode = dice_.chance(0.5) ? lock_mode::shared : lock_mode::upgradeable;
        } else if (of.mode == lock_mode::upgradeable) {
            of.next_mode = dice_.chance(0.8) ? lock_mode::exclusive : lock_mode::shared;
        }
    }

    process draw_process(i64 number) {
        process drawn;
        drawn.host = one_host_ ? 0 : number % 2;
        drawn.clock_rate = 1 + drift_ * (2 * dice_.unit() - 1);
        drawn.clock_origin = dice_.between(second, 1'000'000 * second);
        drawn.stalls = stalls_;
        drawn.options = draw_options();
        drawn.has_owner = owners_;
        if (owners_ && dice_.chance(0.8)) drawn.takes_over = draw_operation();
        for (i64 i = 0; i < users_; ++i) {
            const bool user_stays = keeps();
            user one;
            for (i64 k = 0; k < operations_; ++k) {
                const bool operation_stays = keeps();
                auto next = draw_operation();
                if (operation_stays) one.operations.push_back(std::move(next));
            }
            if (user_stays) drawn.users.push_back(std::move(one));
        }
        return drawn;
    }

    void add(fault drawn, bool stays) {
        if (stays) plan_.faults.push_back(std::move(drawn));
    }

    [[nodiscard]] i64 some_time() { return dice_.between(10 * ms, plan_.heals_at); }

    void draw_faults() {
        const bool all = climate_ == climate::mixed;
        draw_weather(0, dice_.unit());
        for (int i = 0; i < 3; ++i) draw_weather(some_time(), 2 * dice_.unit());
        for (u64 i = all ? dice_.below(6) : 0; i > 0; --i) draw_pause();
        for (u64 i = all ? dice_.below(3) : 0; i > 0; --i) draw_kill();
        for (u64 i = dice_.below(6); i > 0; --i) draw_cut_off();
        if (dice_.chance(0.2)) {
            const bool stays = keeps();
            add({.kind = fault_kind::clock_back,
                 .when = some_time(),
                 .lasts = dice_.between(1 * ms, plan_.ttl)},
                stays);
        }
        if (dice_.chance(0.3)) {
            const bool stays = keeps();
            add({.kind = fault_kind::down,
                 .when = some_time(),
                 .lasts = dice_.between(10 * ms, 2 * plan_.ttl)},
                stays);
        }
    }

    void draw_pause() {
        const bool stays = keeps();
        const i64 longest = 3 * plan_.ttl;
        const i64 when = some_time();
        const i64 lasts =
            dice_.chance(0.5) ? dice_.between(0, longest) : dice_.skewed(1 * ms, longest);
        add({.kind = fault_kind::pause, .when = when, .lasts = lasts, .victim = dice_.next()},
            stays);
    }

    void draw_kill() {
        const bool stays = keeps();
        fault drawn{.kind = fault_kind::kill, .when = some_time(), .victim = dice_.next()};
        if (dice_.chance(0.7)) {
            const bool successor_stays = keeps();
            auto successor = draw_process(0);
            if (successor_stays) drawn.successor = std::move(successor);
        }
        add(std::move(drawn), stays);
    }

    /// Often about as long as a client trusts its leases.
    void draw_cut_off() {
        const bool stays = keeps();
        const i64 when = some_time();
        const i64 lasts = dice_.chance(0.6) ? dice_.between(plan_.ttl * 4 / 10, plan_.ttl * 12 / 10)
                                            : dice_.between(1 * ms, 3 * plan_.ttl);
        add({.kind = fault_kind::cut_off, .when = when, .lasts = lasts, .victim = dice_.next()},
            stays);
    }

    void draw_weather(i64 when, double strength) {
        const bool stays = keeps();
        fault drawn{.kind = fault_kind::change, .when = when};
        const auto draw = [&](hazard_kind kind, double likely, double most, i64 longest) {
            const bool hazard_stays = keeps();
            const bool occurs = dice_.chance(likely);
            hazard one{kind, most * strength * dice_.unit(), longest, std::nullopt};
            if (kind == hazard_kind::slow_answers && dice_.chance(0.6)) one.victim = dice_.next();
            if (occurs && hazard_stays) drawn.hazards.push_back(one);
        };
        if (climate_ == climate::slow_answers) {
            strength = 1;
            draw(hazard_kind::slow_answers, 1, 0.8, 250 * ms);
        } else {
            draw(hazard_kind::slow, 0.4, 0.2, dice_.skewed(20 * ms, 1 * second));
            draw(hazard_kind::slow_answers, 0.3, 0.5, dice_.skewed(20 * ms, 1 * second));
            draw(hazard_kind::lost_request, 0.4, 0.1, 0);
            draw(hazard_kind::lost_reply, 0.4, 0.15, 0);
            draw(hazard_kind::late, 0.4, 0.15, dice_.skewed(20 * ms, 4 * second));
            draw(hazard_kind::cut, 0.4, 0.1, 0);
            draw(hazard_kind::full, 0.4, 0.1, 0);
            draw(hazard_kind::refused, 0.4, 0.5, 0);
            draw(hazard_kind::lost_change, 0.4, 0.5, 0);
            draw(hazard_kind::lost_mail, 0.4, 0.5, 0);
            draw(hazard_kind::late_mail, 0.3, 1, 20 * ms);
        }
        add(std::move(drawn), stays);
    }

    /// Where nothing else goes wrong, a limit has its bound.
    void enforce_limits() {
        plan_.enforces_within = server_dice_.between(50, 400) * ms;
        plan_.heals_at = server_dice_.between(3, 10) * second;
        works_long_ = 0.7;
        limits_ = std::max<u64>(limits_, 2);
    }

    // --- what the database is ------------------------------------------------------------------

    /// Half of the databases are files; some servers are beside a quorum's.
    void draw_server() {
        auto& dice = server_dice_;
        if (dice.chance(0.5)) return;
        plan_.database = {.is_server = true,
                          .many_writers = dice.chance(0.7),
                          .proves_writers = dice.chance(0.5),
                          .notifies = dice.chance(0.5)};
        if (dice.chance(0.25)) draw_quorum();
    }

    void draw_quorum() {
        auto& dice = server_dice_;
        constexpr std::size_t most_processes = 4;
        plan_.members = 3;
        if (plan_.processes.size() > most_processes) plan_.processes.resize(most_processes);
        for (auto& one : plan_.processes) mix_in_quorum(one);
        for (auto& one : plan_.faults) {
            one.members = dice.below(8);
            if (one.successor) mix_in_quorum(*one.successor);
        }
        if (climate_ == climate::calm) return;
        constexpr std::array kinds{fault_kind::member_down, fault_kind::member_crash,
                                   fault_kind::member_back};
        for (u64 i = dice.below(6); i > 0; --i) {
            const bool stays = keeps();
            const auto kind = kinds[pick(dice, {2, 1, 3})];
            const i64 when = dice.between(10 * ms, plan_.heals_at);
            const i64 lasts = dice.skewed(1 * ms, 2 * plan_.ttl);
            add({.kind = kind, .when = when, .lasts = lasts, .victim = dice.next()}, stays);
        }
    }

    void mix_in_quorum(process& of) {
        auto& dice = server_dice_;
        for (auto& one : of.users) {
            for (auto& each : one.operations) {
                if (each.kind > hold_kind::quorum || !dice.chance(0.8)) continue;
                each.kind = hold_kind::quorum;
                each.names.resize(1);
                each.fences = false;
                if (each.how == manner::barging) each.how = manner::for_a_time;
                if (each.how == manner::limited) each.how = manner::patient;
                if (each.end != ending::destructor) each.end = ending::release;
            }
        }
    }

    climate climate_;
    const item_set& without_;
    random dice_;
    random server_dice_;  ///< so that the same seed does the same on a file, and on a server
    plan plan_;
    item last_ = 0;

    double drift_ = 0;
    bool stalls_ = false, one_host_ = true;
    i64 users_ = 1, operations_ = 1;
    bool owners_ = false;
    double thinks_ = 0, works_long_ = 0, fences_ = 0, changes_mode_ = 0;
    double extends_ = 0, chooses_ = 0;
    i64 longest_think_ = 0, longest_work_ = 0;
    u64 leases_ = 1, several_ = 0, modes_ = 0, permits_ = 0, mutexes_ = 0, offices_ = 0;
    u64 runs_ = 0, adoptions_ = 0, requests_ = 0, recursions_ = 0, several_modes_ = 0;
    u64 latches_ = 0, barriers_ = 0, forces_ = 0, limits_ = 0, watches_ = 0;
    u64 once_ = 1, for_a_time_ = 1, barging_ = 1, limited_ = 1, patient_ = 1;
};

}  // namespace

plan draw_plan(u64 seed, climate with, const item_set& without) {
    return drawer{seed, with, without}.draw();
}

std::string to_text(const item_set& items) {
    std::string text;
    for (auto next = items.begin(); next != items.end();) {
        const item first = *next;
        item last = first;
        while (++next != items.end() && *next == last + 1) ++last;
        if (!text.empty()) text += ',';
        text += std::to_string(first);
        if (last > first) text += '-' + std::to_string(last);
    }
    return text;
}

item_set parse_items(std::string_view text) {
    item_set items;
    const auto number = [&text] {
        item value = 0;
        const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (failure != std::errc{}) throw std::invalid_argument{"not a list of items"};
        text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
        return value;
    };
    while (!text.empty()) {
        const item first = number();
        item last = first;
        if (text.starts_with('-')) {
            text.remove_prefix(1);
            last = number();
        }
        for (item each = first; each <= last; ++each) items.insert(each);
        if (text.starts_with(',')) text.remove_prefix(1);
    }
    return items;
}

}  // namespace rowlock::sim
