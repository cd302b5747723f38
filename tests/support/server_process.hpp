#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace support {

/// A folder that an unprivileged server may use, removed with its contents.
class server_folder {
public:
    /// In memory, if there is enough of it: the writes of a server's installation delay every
    /// commit of others on the same disk. The tests crash servers, not machines.
    enum class place : unsigned char { memory, disk };
    explicit server_folder(place where = place::memory);
    server_folder(const server_folder&) = delete;
    server_folder& operator=(const server_folder&) = delete;
    ~server_folder();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    /// Writes a file in it that only the server may read.
    void write(const std::string& name, const std::string& text) const;
    [[nodiscard]] std::string read(const std::string& name) const;

private:
    std::string path_;
};

/// A server in the background, started as the user `nobody` if this process is root's, with its
/// output in a file of the folder. Ends with the thread that made it, however the program ends.
class server_process {
public:
    server_process(const std::vector<std::string>& command, const server_folder& folder,
                   const std::string& log, int stop_signal);
    server_process(const server_process&) = delete;
    server_process& operator=(const server_process&) = delete;
    /// Asks it to stop, and kills it after ten seconds.
    ~server_process();

    [[nodiscard]] bool is_running();
    /// Likewise with another signal.
    void stop(int signal);
    /// Sends SIGSTOP: the server keeps its connections, and answers nothing until thaw().
    void freeze() const;
    void thaw() const;

private:
    pid_t id_;
    int stop_signal_;
    bool over_ = false;
};

/// The output of a server that is ready.
struct sign_of_life {
    std::string_view query = "select 1";
    std::string_view answer = "1";
};

/// Waits until the server is ready; false if it ended, or took longer than `limit`.
[[nodiscard]] bool comes_up(server_process& server, const std::string& url,
                            const sign_of_life& sign = {},
                            std::chrono::milliseconds limit = std::chrono::seconds{60});

/// Runs a command to its end in the same way. Returns its exit status.
int run_as_server(const std::vector<std::string>& command, const server_folder& folder,
                  const std::string& log);

/// A port of 127.0.0.1 that was free at the time of the call.
[[nodiscard]] std::uint16_t free_port();

[[nodiscard]] std::string random_password();

}  // namespace support
