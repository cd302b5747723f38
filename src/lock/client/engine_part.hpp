#pragma once

#include "base/clock.hpp"
#include <rowlock/sql/connection.hpp>

#include <chrono>

namespace rowlock::detail {

/// What a recipe keeps for all its objects of one client: made when it is first used
/// (engine::part), and destroyed with the client.
class engine_part {
public:
    engine_part() = default;
    engine_part(const engine_part&) = delete;
    engine_part& operator=(const engine_part&) = delete;
    virtual ~engine_part() = default;

    /// When the heartbeat is to call work(); base::alarm::never if there is nothing.
    [[nodiscard]] virtual std::chrono::nanoseconds due() const { return base::alarm::never; }
    /// @param at_once the client is being closed: what is left is left for good
    virtual void work(sql::connection& /*db*/, sql::deadline /*until*/, bool /*at_once*/) noexcept {
    }
};

}  // namespace rowlock::detail
