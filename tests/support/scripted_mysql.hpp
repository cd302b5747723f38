#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

/// Programs that pretend to be a MySQL server.
namespace support {

/// A packet of the protocol. @param number the packet's place in its exchange
[[nodiscard]] std::string mysql_packet(char number, std::string_view payload);

/// The first packet of a server of version 8.0.0. @param plugin its authentication plugin
[[nodiscard]] std::string mysql_greeting(std::string_view plugin, bool offers_tls = false);

/// The first packet of a server that turns clients away. @param text from `#` on with its SQLSTATE
[[nodiscard]] std::string mysql_refusal(std::uint16_t number, std::string_view text);

/// Listens on every IPv4 address of this machine and serves one connection at a time. Sends the
/// first line of its script at once and each later one after the client has sent something. Closes
/// after the last.
class scripted_mysql {
public:
    /// @param more scripts for the connections after the first; the first script follows them
    explicit scripted_mysql(std::vector<std::string> script,
                            std::vector<std::vector<std::string>> more = {});
    scripted_mysql(const scripted_mysql&) = delete;
    scripted_mysql& operator=(const scripted_mysql&) = delete;
    ~scripted_mysql();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    /// All bytes that clients have sent so far.
    [[nodiscard]] std::string received() const;
    /// The number of clients that have connected so far.
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
