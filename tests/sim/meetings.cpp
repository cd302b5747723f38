#include "meetings.hpp"

#include <algorithm>
#include <iterator>

namespace rowlock::sim {

void meetings::fail(const std::string& what, i64 generation) {
    judge_.fail(violation::meeting, "generation " + std::to_string(generation) + ": " + what);
}

void meetings::round::answers(meetings& of, const std::string& what, i64 generation) {
    if (answer && *answer != what) of.fail(what + ", and " + *answer + " before", generation);
    answer = what;
}

void meetings::begun(i64 generation, i64 before) {
    if (generation <= before) fail("begun after " + std::to_string(before), generation);
    if (!begun_.insert(generation).second) fail("begun twice", generation);
    latest_ = std::max(latest_, generation);
}

void meetings::waited(i64 generation, bool is_open, i64 arrived_before) {
    auto& of = latches_[generation];
    if (is_open) {
        of.answers(*this, "open", generation);
        if (of.began < parties_) {
            fail("open, and " + std::to_string(of.began) + " of " + std::to_string(parties_) +
                     " have arrived",
                 generation);
        }
    } else if (arrived_before >= parties_) {
        fail("closed, and all had arrived", generation);
    }
}

meetings::call_id meetings::enters(const node& process) {
    entering_[++last_call_] = &process;
    return last_call_;
}

void meetings::entered(call_id which, i64 generation) {
    entering_.erase(which);
    auto& of = barriers_[generation];
    ++of.done;
    if (of.done > parties_) fail("more parties than there are", generation);
    if (losses_count_ || all(of.done + std::ssize(entering_))) return;
    fail("open, and a party does not enter", generation);
}

void meetings::may_have_entered(call_id which) {
    entering_.erase(which);
    ++unsure_;
}

void meetings::left(i64 generation) {
    auto& of = barriers_[generation];
    of.answers(*this, "left", generation);
    if (losses_count_) return;
    if (of.began < of.done || !all(of.began + std::ssize(entering_))) {
        fail("a party has left, and " + std::to_string(of.began) + " of " +
                 std::to_string(of.done) + " that have entered have departed",
             generation);
    }
}

void meetings::killed(const node& process) {
    unsure_ += static_cast<i64>(
        std::erase_if(entering_, [&](const auto& call) { return call.second == &process; }));
}

void meetings::end() {
    for (const auto& [generation, of] : barriers_) {
        if (losses_count_ || of.done == 0 || all(of.done)) continue;
        fail("open, and " + std::to_string(of.done) + " of " + std::to_string(parties_) +
                 " have entered",
             generation);
    }
}

}  // namespace rowlock::sim
