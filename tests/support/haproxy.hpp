#pragma once

#include "support/server_process.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace support {

/// HAProxy in TCP mode before one server, or before a second one that is led to once the first is
/// gone.
class haproxy {
public:
    /// Null if HAProxy is missing: the case then counts as skipped, or fails.
    /// @param url of the server, over TCP  @param backup of the second; empty if there is none
    /// @param idle what it lets a connection sit idle
    [[nodiscard]] static std::unique_ptr<haproxy> start(const std::string& url,
                                                        std::chrono::milliseconds idle,
                                                        const std::string& backup = {});

    /// Of the first server's database and user, through the proxy.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

private:
    haproxy() = default;

    server_folder folder_;
    std::unique_ptr<server_process> process_;
    std::string url_;
};

}  // namespace support
