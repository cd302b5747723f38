#pragma once

#include "lock/client/engine_part.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rowlock::detail {

class engine;

/// What all objects of one name in a client share, for as long as one of them is in use.
/// Thread-safe.
template <typename Shared>
class shared_by_name : public engine_part {
public:
    explicit shared_by_name(engine& /*of*/) {}

    template <typename Make>
    std::shared_ptr<Shared> of(const std::string& name, Make make) {
        const std::lock_guard lock{mutex_};
        auto& slot = all_[name];
        auto shared = slot.lock();
        if (!shared) {
            shared = make();
            slot = shared;
            std::erase_if(all_, [](const auto& entry) { return entry.second.expired(); });
        }
        return shared;
    }

private:
    std::mutex mutex_;
    std::unordered_map<std::string, std::weak_ptr<Shared>> all_;
};

}  // namespace rowlock::detail
