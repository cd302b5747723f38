#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

/// What pretends to be a MySQL server, or is none.
namespace support {

/// A packet of the protocol. @param number the packet's place in its exchange
[[nodiscard]] std::string mysql_packet(char number, std::string_view payload);

/// The first packet of a server of version 8.0.0. @param plugin as which it offers to authenticate
[[nodiscard]] std::string mysql_greeting(std::string_view plugin, bool offers_tls = false);

/// The first packet of a server that turns clients away. @param text from `#` on with its SQLSTATE
[[nodiscard]] std::string mysql_refusal(std::uint16_t number, std::string_view text);

/// Listens on every IPv4 address of this machine and serves one connection at a time. Says the
/// first line of its script at once and each other one after the client has said something; closes
/// after the last.
class scripted_mysql {
public:
    /// @param more scripts for the connections after the first; then it is the first one's turn
    explicit scripted_mysql(std::vector<std::string> script,
                            std::vector<std::vector<std::string>> more = {});
    scripted_mysql(const scripted_mysql&) = delete;
    scripted_mysql& operator=(const scripted_mysql&) = delete;
    ~scripted_mysql();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    /// What all clients have sent so far.
    [[nodiscard]] std::string received() const;
    /// So many clients have come so far.
    [[nodiscard]] int clients() const noexcept { return clients_; }

private:
    void serve();
    bool hear(int client);

    std::vector<std::vector<std::string>> scripts_;
    std::atomic<int> clients_{0};
    int socket_;
    std::uint16_t port_;
    mutable std::mutex mutex_;
    std::string received_;
    std::thread thread_;
};

}  // namespace support
