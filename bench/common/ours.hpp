#pragma once

#include "common/measure.hpp"
#include <rowlock/client.hpp>

#include <memory>
#include <string>

namespace bench {

/// Acquires and releases the lease of that name with each turn.
[[nodiscard]] std::unique_ptr<worker> our_lease(std::shared_ptr<rowlock::client> locks,
                                                const std::string& name);

}  // namespace bench
