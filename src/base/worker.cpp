#include "base/worker.hpp"

#include "base/signal_blocked_thread.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace rowlock::base {

worker::worker(const clock& clock, std::function<nanoseconds()> step, listener with)
    : clock_{clock}, alarm_{clock}, step_{std::move(step)}, listener_{std::move(with)} {
    thread_ = signal_blocked_thread([this] { run(); });
}

worker::~worker() {
    stop();
    thread_.join();
}

void worker::stop() noexcept {
    stopping_ = true;
    alarm_.poke();
}

void worker::poke() const noexcept {
    poked_ = true;
    alarm_.poke();
}

void worker::run() {
    while (!stopping_) {
        const nanoseconds next = step_();
        while (!stopping_ && !sleep(next)) {
        }
    }
}

/// True if a step is due. A message without proof wakes the thread but causes no step.
bool worker::sleep(nanoseconds until) {
    if (!listener_.open) {
        alarm_.wait_until(until);
        return true;
    }
    std::array<pollfd, listener::most> on{};
    for (auto& each : on) each = {-1, POLLIN, 0};
    const nanoseconds again = listener_.open(on);
    alarm_.wait_until(std::min(until, again), on);
    const bool poked = poked_.exchange(false);
    const bool spoken_to =
        std::ranges::any_of(on, [](const auto& each) { return each.revents != 0; });
    const bool called = (spoken_to || clock_.now() >= again) && listener_.read();
    return poked || called || clock_.now() >= until;
}

}  // namespace rowlock::base
