// Runs a plan: processes with a client each, whose threads acquire and give back, while faults
// happen to them; then heals everything, and looks at what remains.

#include "simulation.hpp"

#include "database.hpp"
#include "mailbox.hpp"
#include "members.hpp"
#include "test_dialect.hpp"
#include "user_thread.hpp"
#include "wall_clock.hpp"
#include <rowlock/rowlock.hpp>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace rowlock::sim {
namespace {

using std::chrono::milliseconds;

std::string number(i64 value) {
    return std::to_string(value);
}

/// After the faults: sessions of the dead expire, every hold is short.
constexpr i64 longest_readmission = 300 * second;

i64 longest_wait(const plan& of) {
    return 3 * of.ttl + 5 * second;
}

class simulation final : private scene {
public:
    simulation(const plan& chosen, u64 seed, std::FILE* prints, statistics& sum)
        : scene{chosen, sum},
          scheduler_{seed, chosen.scheduling},
          oracle_{scheduler_},
          meetings_{oracle_, chosen.parties, chosen.losses_count} {
        scheduler_.prints = prints;
        start_anew();
        present(chosen.database);
        database_ = std::make_unique<sim::database>(chosen.database.is_server ? "the server" : "");
        members_ = std::make_unique<sim::members>(chosen.members);
        database_->on_answer = [this](const request& what, const sql::result& rows) {
            if (rows.affected() == 1 && what.name == "heartbeat") {
                oracle_.beats(what.node, what.sent);
            }
            if (what.name != "enqueue" || rows.affected() != 1) return;
            const bool limited = !what.parameters[8].is_null();
            oracle_.enqueued(what.thread, what.texts.front(), what.parameters[2].integer(),
                             {.asked_at = what.sent, .made_at = what.ran, .limited = limited});
        };
    }

    outcome go() {
        make_semaphore();
        if (members_->any()) found();
        if (chosen().enforces_within > 0) enforce();
        heals_at_ = scheduler_.now() + chosen().heals_at;
        for (const auto& process : chosen().processes) start(process, {});
        for (const auto& fault : chosen().faults) {
            members_->prepare(fault);
            scheduler_.after(fault.when, [this, &fault] {
                if (!healed()) happen(fault);
            });
        }
        scheduler_.at(heals_at_, [this] { heal(); });
        run_until_idle(heals_at_ + longest_wait(chosen()), "a call does not end");
        sum().longest_wait = std::max(sum().longest_wait, scheduler_.now() - heals_at_);
        if (fine()) look_at_the_end();
        sum().statements += database_->statements();
        sum().steps += scheduler_.steps();
        sum().virtual_time += scheduler_.now();
        ++sum().seeds;
        return {oracle_.found(), oracle_.text(), scheduler_.trace()};
    }

private:
    sim::scheduler& scheduler() override { return scheduler_; }
    sim::oracle& oracle() override { return oracle_; }
    sim::meetings& meetings() override { return meetings_; }
    sim::database& database() override { return *database_; }
    bool healed() const override { return healed_; }
    bool steady(const node& process) const override { return !unsteady_.contains(process.id); }

    [[nodiscard]] bool fine() const { return oracle_.found() == violation::none; }

    void run_until_idle(i64 limit, const std::string& otherwise) {
        if (!fine()) return;
        const auto done = [this] { return running_ == 0 || !fine(); };
        if (scheduler_.run(done, limit)) return;
        // A call may wait as long for the vote of a member that is readmitted, or for a row that
        // the operator's transaction has locked there.
        while (operates_) {
            const i64 ends = scheduler_.now() + longest_readmission;
            if (!scheduler_.run([&] { return !operates_ || done(); }, ends)) break;
            limit = scheduler_.now() + longest_wait(chosen());
            if (scheduler_.run(done, limit)) return;
        }
        const bool late = scheduler_.now() >= limit;
        if (scheduler_.prints != nullptr) scheduler_.print_stacks();
        oracle_.fail(late ? violation::wait : violation::deadlock,
                     otherwise + "\n" + scheduler_.describe());
    }

    void make_semaphore() {
        ++running_;
        scheduler_.spawn(
            scheduler_.add_node(0, 1, second),
            [this] {
                client locks{database_->source()};
                semaphore{locks, semaphore_name}.set_capacity(chosen().permits);
                --running_;
            },
            "main");
        run_until_idle(60 * second, "the first client does not end");
    }

    static void present(const server_traits& of) {
        present_sqlite();
        if (!of.is_server) return;
        auto& shown = presented();
        shown.has_server = true;
        shown.one_writer = !of.many_writers;
        shown.secrets_prove_writers = of.proves_writers;
        shown.notifies = of.notifies;
    }

    void found() {
        ++running_;
        const auto code = [this] {
            found_quorum(members_->sources(), milliseconds{chosen().ttl / ms});
            --running_;
        };
        scheduler_.spawn(scheduler_.add_node(0, 1, second), code, "founder");
        run_until_idle(60 * second, "the quorum is not founded");
    }

    /// A process whose reaper is there until the end.
    void enforce() {
        ++running_;
        auto code = [this] {
            client_options options;
            options.ttl = milliseconds{chosen().ttl / ms};
            options.reaper.emplace().interval = milliseconds{chosen().enforces_within / ms};
            client locks{database_->source(), options};
            static_cast<void>(locks.try_acquire("enforcer"));
            constexpr i64 of_a_round = 100 * ms;
            oracle_.enforces(chosen().enforces_within + of_a_round + chosen().ttl);
            while (!healed_) scheduler_.sleep_until(scheduler_.now() + 20 * ms);
            --running_;
        };
        scheduler_.spawn(scheduler_.add_node(0, 1, second), std::move(code), "enforcer");
    }

    /// As an operator does, who repeats what fails.
    void readmit(std::size_t position) {
        operates_ = true;
        auto& home = scheduler_.add_node(0, 1, second);
        for (const auto& each : members_->all()) each->spared.insert(home.id);
        const auto code = [this, position] {
            while (!members_->votes(position)) {
                try {
                    readmit_member(members_->sources(), position);
                } catch (const error& failure) {
                    scheduler_.log(std::string{"a readmission failed: "} + failure.what());
                }
                scheduler_.sleep_until(scheduler_.now() + 50 * ms);
            }
            scheduler_.log("member " + number(static_cast<i64>(position) + 1) + " votes again");
            members_->readmitted();
            operates_ = false;
        };
        scheduler_.spawn(home, code, "operator");
    }

    /// @param owner of the process in whose place it starts; empty: of none
    void start(process planned, const std::string& owner) {
        const bool takes_over = !owner.empty() && planned.takes_over;
        if (!owner.empty()) {
            planned.options.owner = owner;
        } else if (planned.has_owner) {
            planned.options.owner = "owner " + number(static_cast<i64>(started_.size()));
        }
        const auto& made = started_.emplace_back(std::move(planned));
        launch(made, takes_over);
    }

    void launch(const process& planned, bool takes_over) {
        node& home = scheduler_.add_node(planned.host, planned.clock_rate, planned.clock_origin);
        if (planned.stalls) {
            home.stall = 0.002;
            home.longest_stall = 60 * ms;
            unsteady_.insert(home.id);
        }
        ++running_;
        working_.emplace_back(&home, &planned);
        const auto main = [this, &home, &planned, takes_over] {
            try {
                client locks{database_->source(), planned.options};
                shared_mutexes modes;
                for (const auto& name : mode_names()) {
                    modes.push_back(std::make_unique<shared_mutex>(locks, name));
                }
                std::optional<quorum_client> quorum;
                if (members_->any()) quorum.emplace(members_->sources(), of_member(planned));
                const clients all{locks, modes, quorum ? &*quorum : nullptr};
                if (takes_over) take_over(*this, home, all, planned);
                std::vector<std::thread> threads;
                for (const auto& user : planned.users) {
                    threads.emplace_back([this, &home, &all, &planned, &user] {
                        work(*this, home, all, planned, user);
                    });
                }
                for (auto& thread : threads) thread.join();
                scheduler_.log("closes its client");
            } catch (const error& failure) {
                oracle_.fail(violation::error, std::string{"a process: "} + failure.what());
            }
            scheduler_.log("ends");
            std::erase_if(working_, [&](const auto& one) { return one.first == &home; });
            --running_;
        };
        scheduler_.spawn(home, main, "main");
    }

    static quorum_options of_member(const process& planned) {
        quorum_options options{.member = planned.options};
        options.member.owner.clear();
        return options;
    }

    [[nodiscard]] std::vector<std::string> lease_names() const {
        std::vector<std::string> all;
        for (int i = 0; i < chosen().names; ++i) all.emplace_back(1, static_cast<char>('a' + i));
        return all;
    }
    [[nodiscard]] std::vector<std::string> mode_names() const {
        auto all = lease_names();
        for (auto& one : all) one = mode_name(chosen(), one);
        return all;
    }

    // --- faults --------------------------------------------------------------------------------

    node* victim(u64 choice) {
        std::vector<node*> alive;
        for (const auto& [process, planned] : working_) {
            if (!process->paused) alive.push_back(process);
        }
        return alive.empty() ? nullptr : alive[choice % alive.size()];
    }

    void happen(const fault& what) {
        switch (what.kind) {
            case fault_kind::change:
                return change_weather(what);
            case fault_kind::down:
                scheduler_.log("FAULT the database answers nobody");
                at_some(what, [](weather& of) { of.down = true; });
                scheduler_.after(what.lasts, [this, &what] {
                    at_some(what, [](weather& of) { of.down = false; });
                });
                return;
            case fault_kind::member_down:
            case fault_kind::member_crash:
            case fault_kind::member_back:
                return members_->happen(what, [this](std::size_t which) { readmit(which); });
            case fault_kind::clock_back:
                scheduler_.log("FAULT the database's clock is set back by " +
                               number(what.lasts / us) + " us");
                clock_was_set_ = true;
                oracle_.clock_set();
                database_->clock_step -= what.lasts;
                return;
            case fault_kind::pause:
            case fault_kind::kill:
            case fault_kind::cut_off:
                break;
        }
        node* const process = victim(what.victim);
        if (process == nullptr) return;
        if (what.kind == fault_kind::pause) return pause(*process, what.lasts);
        if (what.kind == fault_kind::kill) return kill(*process, what);
        ++sum().cut_offs;
        scheduler_.log("FAULT n" + number(process->id) + " is cut off");
        at_some(what, [id = process->id](weather& of) { of.cut_off.insert(id); });
        scheduler_.after(what.lasts, [this, &what, id = process->id] {
            at_some(what, [id](weather& of) { of.cut_off.erase(id); });
        });
    }

    void at_some(const fault& what, const std::function<void(weather&)>& call) {
        members_->at_some(*database_, what.members, call);
    }

    void pause(node& process, i64 lasts) {
        ++sum().pauses;
        scheduler_.log("FAULT n" + number(process.id) + " is stopped");
        unsteady_.insert(process.id);
        oracle_.stopped(process);
        scheduler_.pause(process);
        scheduler_.after(lasts, [this, &process] {
            if (process.killed || !process.paused) return;
            scheduler_.log("n" + number(process.id) + " continues");
            scheduler_.resume(process);
        });
    }

    void kill(node& process, const fault& what) {
        ++sum().kills;
        scheduler_.log("FAULT n" + number(process.id) + " is killed");
        oracle_.killed(process);
        meetings_.killed(process);
        scheduler_.kill(process);
        database_->close_connections_of(process.id);
        for (const auto& each : members_->all()) each->close_connections_of(process.id);
        close_mailboxes(process.id);
        const auto found = std::ranges::find(working_, &process, &working::first);
        const std::string owner = found->second->options.owner;
        working_.erase(found);
        --running_;
        if (what.successor) start(*what.successor, owner);
    }

    void change_weather(const fault& what) {
        at_some(what, [](weather& of) {
            const auto cut_off = std::move(of.cut_off);
            of = {.down = of.down, .cut_off = cut_off};
        });
        mail = {};
        for (const auto& one : what.hazards) {
            at_some(what, [this, &one](weather& of) { apply(one, of); });
        }
        scheduler_.log("FAULT " + number(static_cast<i64>(what.hazards.size())) +
                       " hazards from here on");
    }

    void apply(const hazard& one, weather& sky) {
        switch (one.kind) {
            case hazard_kind::slow:
                sky.slow = one.chance;
                sky.slow_max = one.longest;
                break;
            case hazard_kind::slow_answers:
                sky.slow_answers = one.chance;
                sky.slow_max = one.longest;
                if (one.victim) {
                    if (const auto* const of = victim(*one.victim)) sky.slow_answers_of = of->id;
                }
                break;
            case hazard_kind::lost_request:
                sky.lost_request = one.chance;
                break;
            case hazard_kind::lost_reply:
                sky.lost_reply = one.chance;
                break;
            case hazard_kind::late:
                sky.late = one.chance;
                sky.late_max = one.longest;
                break;
            case hazard_kind::cut:
                sky.cut = one.chance;
                break;
            case hazard_kind::full:
                sky.full = one.chance;
                break;
            case hazard_kind::refused:
                sky.refused = one.chance;
                break;
            case hazard_kind::lost_change:
                sky.lost_change = one.chance;
                break;
            case hazard_kind::lost_mail:
                mail.lost = one.chance;
                break;
            case hazard_kind::late_mail:
                mail.longest = one.longest;
                break;
        }
    }

    void heal() {
        if (healed_) return;
        scheduler_.log("HEALED");
        healed_ = true;
        oracle_.enforces(0);
        database_->sky = {};
        members_->heal();
        mail = {};
        for (const auto& process : scheduler_.nodes()) {
            process->stall = 0;
            if (process->paused) scheduler_.resume(*process);
        }
    }

    // --- the end -------------------------------------------------------------------------------

    void look_at_the_end() {
        heal();
        // By then all sessions of the dead have expired. A timer, or the time would stand still.
        i64 later = scheduler_.now() + longest_wait(chosen());
        while (operates_) {
            later = scheduler_.now() + longest_readmission;
            if (!scheduler_.run([this] { return !operates_; }, later)) {
                oracle_.fail(violation::wait, "a readmission does not end");
                return;
            }
            later = scheduler_.now() + longest_wait(chosen());
        }
        scheduler_.at(later, [] {});
        static_cast<void>(scheduler_.run([&] { return scheduler_.now() >= later; }, later + 1));
        meetings_.end();
        expect_rows("sessions that live", live_sessions(), 0);
        expect_rows("used permits, of those in holds",
                    database_->ask_number("select coalesce(sum(used), 0) from rowlock_lock"),
                    database_->ask_number("select coalesce(sum(weight), 0) from rowlock_hold"));
        const auto stale = database_->ask("select name, was, became from sim_stale_write");
        for (std::size_t i = 0; i < stale.rows(); ++i) {
            oracle_.fail(violation::fence, std::string{stale.text(i, 0)} + ": token " +
                                               std::string{stale.text(i, 2)} + " after " +
                                               std::string{stale.text(i, 1)});
        }
        ++running_;
        scheduler_.spawn(
            scheduler_.add_node(0, 1, second), [this] { acquire_everything(); }, "last");
        run_until_idle(scheduler_.now() + 60 * second, "the last client does not end");
        if (fine()) expect_rows("sessions of closed clients", live_sessions(), 0);
    }

    void expect_rows(const std::string& what, i64 count, i64 expected) {
        if (count == expected) return;
        oracle_.fail(violation::leak,
                     what + ": " + number(count) + " instead of " + number(expected));
    }

    /// But for the operator's, whose ttl is longer.
    i64 live_sessions() {
        const auto of = [this](sim::database& one) {
            return one.ask_number(
                "select count(*) from rowlock_session where ended = 0 and "
                "expires_at > " +
                number(one.clock()) + " and ttl_us <= " + number(2 * chosen().ttl / us));
        };
        i64 sum = of(*database_);
        for (const auto& each : members_->all()) sum += of(*each);
        return sum;
    }

    /// Whatever became of the others, a new client gets each lock soon.
    void acquire_everything() {
        constexpr milliseconds soon{100};
        const auto expect = [this](const std::string& name, bool acquired) {
            if (!acquired) oracle_.fail(violation::leak, name + " does not become free");
        };
        try {
            client_options options;
            options.ttl = milliseconds{chosen().ttl / ms};
            client locks{database_->source(), options};
            for (const auto& name : lease_names()) {
                expect(name, locks.try_acquire_for(name, soon).has_value());
            }
            for (const auto* const name : {election_name, run_name}) {
                expect(name, locks.try_acquire_for(name, soon).has_value());
            }
            for (const auto& name : mode_names()) {
                shared_mutex modes{locks, name};
                expect(name, modes.try_acquire_for(lock_mode::exclusive, soon).has_value());
            }
            if (members_->any()) {
                quorum_client quorum{members_->sources(), {.member = options}};
                for (const auto& name : lease_names()) {
                    const auto of = quorum_name(name);
                    expect(of, quorum.try_acquire_for(of, soon).has_value());
                }
            }
            semaphore permits{locks, semaphore_name};
            expect(semaphore_name, permits.try_acquire_for(chosen().permits, soon).has_value());
        } catch (const error& failure) {
            oracle_.fail(violation::error, std::string{"the last client: "} + failure.what());
        }
        --running_;
    }

    sim::scheduler scheduler_;
    sim::oracle oracle_;
    sim::meetings meetings_;
    std::unique_ptr<sim::database> database_;
    std::unique_ptr<sim::members> members_;
    bool operates_ = false;  ///< somebody readmits a member
    int running_ = 0;        ///< main threads that have not ended
    std::deque<process> started_{};
    using working = std::pair<node*, const process*>;
    std::vector<working> working_{};  ///< processes that have neither ended nor been killed
    std::set<int> unsteady_{};        ///< nodes that were ever stopped or stalled
    i64 heals_at_ = 0;
    bool healed_ = false;
};

}  // namespace

outcome simulate(const plan& chosen, u64 seed, u64 schedule, std::FILE* prints, statistics& sum) {
    random mix{seed + schedule * 0x9e3779b97f4a7c15ULL};
    // What a killed process leaves behind is not freed, as nothing of it is unwound.
    auto running = std::make_unique<simulation>(chosen, mix.next(), prints, sum);
    return running->go();
}

}  // namespace rowlock::sim
