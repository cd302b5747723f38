#include "service/worker.hpp"

#include "service/quiet_thread.hpp"

namespace rowlock::service {

worker::worker(const clock& clock, std::function<nanoseconds()> step)
    : alarm_{clock}, step_{std::move(step)} {
    thread_ = quiet_thread([this] { run(); });
}

worker::~worker() {
    stop();
    thread_.join();
}

void worker::stop() noexcept {
    stopping_ = true;
    alarm_.poke();
}

void worker::run() {
    while (!stopping_) alarm_.wait_until(step_());
}

}  // namespace rowlock::service
