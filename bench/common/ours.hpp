#pragma once

#include "common/measure.hpp"
#include <rowlock/client.hpp>

#include <memory>
#include <string>

namespace bench {

/// Acquires and releases the lease of that name with each turn, and waits for both.
[[nodiscard]] std::unique_ptr<worker> our_lease(std::shared_ptr<rowlock::client> locks,
                                                const std::string& name);
/// Leaves the release to the destructor, by client_options::releasing.
[[nodiscard]] std::unique_ptr<worker> our_scoped_lease(std::shared_ptr<rowlock::client> locks,
                                                       const std::string& name);

}  // namespace bench
