#include "scheduler.hpp"

#include "fiber.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace rowlock::sim {

scheduler* world = nullptr;

i64 node::truth(i64 local_time) const noexcept {
    if (local_time >= forever / 2) return forever;
    i64 guess = static_cast<i64>(static_cast<double>(local_time - origin) / rate) - 2;
    while (local(guess) < local_time) ++guess;
    return guess;
}

struct thread {
    enum class state : unsigned char { runnable, blocked, ended };

    thread(u64 its_number, node& process, std::function<void()> code, std::string its_name)
        : number{its_number}, home{&process}, name{std::move(its_name)}, stack{std::move(code)} {}

    u64 number;
    node* home;
    std::string name;
    fiber stack;
    state now = state::runnable;
    scheduler::addresses waits_on{};
    u64 timer = 0;  ///< the number of the timer that may wake it; 0: none
    bool timed_out = false;
    u64 priority = 0;
};

struct scheduler::timer {
    i64 when;
    u64 number;
    bool wakes;        ///< the thread that waits for it, if one still does
    std::size_t call;  ///< otherwise: an index of calls_

    /// For a heap with the earliest first.
    bool operator<(const timer& other) const noexcept {
        return when != other.when ? when > other.when : number > other.number;
    }
};

scheduler::scheduler(u64 seed, policy choosing) : how{choosing} {
    random mix{seed};
    choices.state = mix.next();
    draws.state = mix.next();
    nodes_.push_back(std::make_unique<node>());
    for (int i = 0; i < how.priority_changes; ++i) {
        change_points_.push_back(choices.below(how.expected_steps));
    }
    std::sort(change_points_.begin(), change_points_.end(), std::greater<>{});
    world = this;
}

scheduler::~scheduler() {
    threads_.clear();
    world = nullptr;
}

node& scheduler::add_node(i64 host, double clock_rate, i64 clock_origin) {
    auto process = std::make_unique<node>();
    process->id = static_cast<int>(nodes_.size());
    process->host = host;
    process->rate = clock_rate;
    process->origin = clock_origin;
    nodes_.push_back(std::move(process));
    return *nodes_.back();
}

node& scheduler::here() noexcept {
    if (read_as_ != nullptr) return *read_as_;
    return current_ != nullptr ? *current_->home : *nodes_.front();
}

u64 scheduler::current() const noexcept {
    return current_ != nullptr ? current_->number : 0;
}

u64 scheduler::spawn(node& home, std::function<void()> code, std::string name) {
    threads_.push_back(
        std::make_unique<thread>(++last_number_, home, std::move(code), std::move(name)));
    thread& started = *threads_.back();
    if (started.name.empty()) started.name = "thread " + std::to_string(started.number);
    started.priority = choices.next() | (1ULL << 63);
    note(started.number);
    make_runnable(started);
    return started.number;
}

void scheduler::make_runnable(thread& which) {
    which.now = thread::state::runnable;
    which.waits_on = {};
    which.timer = 0;
    (which.home->paused ? which.home->parked : runnable_).push_back(&which);
}

/// From the running thread, whose state is set: lets the scheduler choose.
void scheduler::take_off() {
    current_->stack.leave();
}

void scheduler::give_way() {
    if (current_ == nullptr || read_as_ != nullptr) return;
    const node& home = *current_->home;
    if (home.stall > 0 && choices.chance(home.stall)) {
        return sleep_until(now_ + choices.skewed(10 * us, home.longest_stall));
    }
    const bool alone = runnable_.empty() && (timers_.empty() || timers_.front().when > now_);
    if (alone) return;
    make_runnable(*current_);
    take_off();
}

void scheduler::give_way_at(double chance) {
    if (current_ == nullptr || read_as_ != nullptr || !choices.chance(chance)) return;
    give_way();
}

bool scheduler::block(const addresses& on, i64 until) {
    if (current_ == nullptr || read_as_ != nullptr) {
        std::fprintf(stderr, "sim: a call that must not wait would block\n");
        std::abort();
    }
    thread& self = *current_;
    self.now = thread::state::blocked;
    self.timed_out = false;
    self.waits_on = on;
    if (until != forever) {
        self.timer = ++last_timer_;
        set({std::max(until, now_), self.timer, true, 0});
    }
    take_off();
    return !self.timed_out;
}

void scheduler::join(u64 number) {
    for (;;) {
        const auto found = std::find_if(threads_.begin(), threads_.end(),
                                        [=](const auto& one) { return one->number == number; });
        if (found == threads_.end() || (*found)->now == thread::state::ended) return;
        block(found->get(), forever);
    }
}

void scheduler::at_exit(void (*destroy)(void*), void* object) {
    if (current_ != nullptr) current_->stack.at_exit(destroy, object);
}

void scheduler::rename(std::string name) {
    if (current_ != nullptr) current_->name = std::move(name);
}

void scheduler::set(timer next) {
    timers_.push_back(next);
    std::push_heap(timers_.begin(), timers_.end());
}

void scheduler::at(i64 true_time, std::function<void()> call) {
    std::size_t place = calls_.size();
    if (free_calls_.empty()) {
        calls_.push_back(std::move(call));
    } else {
        place = free_calls_.back();
        free_calls_.pop_back();
        calls_[place] = std::move(call);
    }
    set({std::max(true_time, now_), ++last_timer_, false, place});
}

void scheduler::wake_all(const void* on) {
    for (const auto& sleeper : threads_) {
        if (sleeper->now != thread::state::blocked) continue;
        const auto& waits_on = sleeper->waits_on;
        if (std::find(waits_on.begin(), waits_on.end(), on) != waits_on.end()) {
            make_runnable(*sleeper);
        }
    }
}

void scheduler::wake_one(const void* on) {
    thread* chosen = nullptr;
    u64 candidates = 0;
    for (const auto& sleeper : threads_) {
        if (sleeper->now != thread::state::blocked || sleeper->waits_on[0] != on) continue;
        if (choices.below(++candidates) == 0) chosen = sleeper.get();
    }
    if (chosen != nullptr) make_runnable(*chosen);
}

void scheduler::pause(node& process) {
    process.paused = true;
    const auto first = std::stable_partition(runnable_.begin(), runnable_.end(),
                                             [&](auto* one) { return one->home != &process; });
    process.parked.insert(process.parked.end(), first, runnable_.end());
    runnable_.erase(first, runnable_.end());
}

void scheduler::resume(node& process) {
    process.paused = false;
    runnable_.insert(runnable_.end(), process.parked.begin(), process.parked.end());
    process.parked.clear();
}

void scheduler::kill(node& process) {
    process.killed = true;
    process.parked.clear();
    std::erase_if(runnable_, [&](auto* one) { return one->home == &process; });
    std::erase_if(threads_, [&](const auto& one) { return one->home == &process; });
}

void scheduler::run_next_timer() {
    std::pop_heap(timers_.begin(), timers_.end());
    const timer next = timers_.back();
    timers_.pop_back();
    if (!next.wakes) {
        now_ = std::max(now_, next.when);
        note(next.number);
        const auto call = std::move(calls_[next.call]);
        free_calls_.push_back(next.call);
        call();
        return;
    }
    const auto sleeper = std::find_if(threads_.begin(), threads_.end(),
                                      [&](const auto& one) { return one->timer == next.number; });
    if (sleeper == threads_.end()) return;  // it was woken before, or killed
    now_ = std::max(now_, next.when);
    (*sleeper)->timed_out = true;
    make_runnable(**sleeper);
}

thread& scheduler::choose() {
    std::size_t chosen = 0;
    if (how.priority_changes == 0) {
        chosen = choices.below(runnable_.size());
    } else {
        while (!change_points_.empty() && change_points_.back() <= steps_) {
            change_points_.pop_back();
            runnable_[choices.below(runnable_.size())]->priority = choices.next() >> 1;
        }
        for (std::size_t i = 1; i < runnable_.size(); ++i) {
            if (runnable_[i]->priority > runnable_[chosen]->priority) chosen = i;
        }
        // So that a thread that spins until another has acted does not do so for ever.
        if (choices.chance(0.02)) chosen = choices.below(runnable_.size());
    }
    thread& next = *runnable_[chosen];
    runnable_[chosen] = runnable_.back();
    runnable_.pop_back();
    return next;
}

bool scheduler::run(const std::function<bool()>& done, i64 limit) {
    for (;;) {
        if (done()) return true;
        // What is due comes first: a thread that always has work does not stop the time of others.
        while (!timers_.empty() && (timers_.front().when <= now_ || runnable_.empty())) {
            if (timers_.front().when > limit) {
                now_ = limit;
                return done();
            }
            run_next_timer();
        }
        if (now_ > limit) return false;
        if (runnable_.empty()) return done();
        ++steps_;
        thread& next = choose();
        note(next.number * 0x9e3779b97f4a7c15ULL + static_cast<u64>(now_));
        current_ = &next;
        next.stack.enter();
        current_ = nullptr;
        if (next.stack.ended()) forget(next);
    }
}

void scheduler::forget(thread& which) {
    which.now = thread::state::ended;
    wake_all(&which);
    std::erase_if(threads_, [&](const auto& one) { return one.get() == &which; });
}

void scheduler::log(const std::string& line) {
    if (prints == nullptr) return;
    std::string_view name = "-";
    if (current_ != nullptr) name = current_->name;
    std::fprintf(prints, "%12.6f  n%-2d %-9.*s %s\n", static_cast<double>(now_) / 1e9, here().id,
                 static_cast<int>(name.size()), name.data(), line.c_str());
}

std::string scheduler::describe() const {
    std::string text;
    for (const auto& one : threads_) {
        text += "  thread " + std::to_string(one->number) + " of n" +
                std::to_string(one->home->id) + " (" + one->name + ") ";
        if (one->now == thread::state::runnable) {
            text += "could run";
        } else {
            text += one->timer != 0 ? "sleeps" : "is blocked";
        }
        text += one->home->paused ? ", paused\n" : "\n";
    }
    return text;
}

void scheduler::print_stacks() {
    for (const auto& one : threads_) {
        std::printf("thread %llu of n%d (%s)\n", static_cast<unsigned long long>(one->number),
                    one->home->id, one->name.c_str());
        if (one->now == thread::state::blocked) one->stack.print_stack();
    }
}

}  // namespace rowlock::sim
