// Stands for src/base/clock.cpp: the clock of the node, and alarms without timerfd, eventfd and
// poll.

#include "base/clock.hpp"
#include "pollable.hpp"
#include "scheduler.hpp"

#include <algorithm>
#include <utility>

namespace rowlock::base {

using sim::world;

nanoseconds clock::now() const noexcept {
    if (world == nullptr) return nanoseconds{0};
    return nanoseconds{world->here().local(world->now())};
}

alarm::alarm(clock clock) : clock_{std::move(clock)}, wake_{sim::new_pollable()} {}

alarm::~alarm() = default;

bool alarm::wait_until(nanoseconds moment, std::span<pollfd> also) {
    auto* const own = sim::find_pollable(wake_);
    also = also.first(std::min(also.size(), most_others));
    const sim::i64 until = moment == never ? sim::forever : world->here().truth(moment.count());
    world->give_way();
    for (;;) {
        sim::scheduler::addresses polled{own};
        bool others_spoke = false;
        for (std::size_t i = 0; i < also.size(); ++i) {
            const auto* const other = sim::find_pollable(also[i].fd);
            polled[i + 1] = other;
            const bool readable = other != nullptr && other->readable;
            also[i].revents = readable ? POLLIN : short{0};
            others_spoke = others_spoke || readable;
        }
        const bool poked = std::exchange(own->readable, false);
        if (poked || others_spoke || world->now() >= until) return poked;
        world->block(polled, until);
    }
}

void alarm::poke() const noexcept {
    auto* const own = sim::find_pollable(wake_);
    own->readable = true;
    world->wake_all(own);
}

}  // namespace rowlock::base
