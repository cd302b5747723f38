#include "common/ours.hpp"

#include <stdexcept>
#include <utility>

namespace bench {
namespace {

class lease_worker final : public worker {
public:
    lease_worker(std::shared_ptr<rowlock::client> locks, const std::string& name)
        : locks_{std::move(locks)}, name_{name} {}
    void turn() override {
        auto lease = locks_->try_acquire(name_);
        if (!lease) throw std::runtime_error{"rowlock: not granted"};
        lease->release();
    }

private:
    std::shared_ptr<rowlock::client> locks_;
    rowlock::lock_name name_;
};

}  // namespace

std::unique_ptr<worker> our_lease(std::shared_ptr<rowlock::client> locks, const std::string& name) {
    return std::make_unique<lease_worker>(std::move(locks), name);
}

}  // namespace bench
