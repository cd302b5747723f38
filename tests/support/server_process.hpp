#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace support {

/// A folder that an unprivileged server may use, removed with what is in it.
class server_folder {
public:
    /// In memory, if there is enough of it: what a server writes when it is made keeps every commit
    /// of the others on the same disk waiting. Our servers crash, machines do not.
    enum class place : unsigned char { memory, disk };
    explicit server_folder(place where = place::memory);
    server_folder(const server_folder&) = delete;
    server_folder& operator=(const server_folder&) = delete;
    ~server_folder();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    /// A file in it that the server alone may read.
    void write(const std::string& name, const std::string& text) const;
    [[nodiscard]] std::string read(const std::string& name) const;

private:
    std::string path_;
};

/// A server in the background, started as `nobody` if we are root, its output in a file of the
/// folder. Ends with the thread that made it, whatever becomes of the program.
class server_process {
public:
    server_process(const std::vector<std::string>& command, const server_folder& folder,
                   const std::string& log, int stop_signal);
    server_process(const server_process&) = delete;
    server_process& operator=(const server_process&) = delete;
    /// Asks it to stop, insists after ten seconds.
    ~server_process();

    [[nodiscard]] bool is_running();
    /// With another signal; insists after ten seconds, too.
    void stop(int signal);
    /// SIGSTOP: it keeps its connections, and answers nothing until thaw().
    void freeze() const;
    void thaw() const;

private:
    pid_t id_;
    int stop_signal_;
    bool over_ = false;
};

/// What a server says once it is ready.
struct sign_of_life {
    std::string_view query = "select 1";
    std::string_view answer = "1";
};

/// Waits until the server is ready; false if it ended, or took longer than `limit`.
[[nodiscard]] bool comes_up(server_process& server, const std::string& url,
                            const sign_of_life& sign = {},
                            std::chrono::milliseconds limit = std::chrono::seconds{10});

/// Runs a command to its end in the same way; its exit status.
int run_as_server(const std::vector<std::string>& command, const server_folder& folder,
                  const std::string& log);

/// A port of 127.0.0.1 that was free a moment ago.
[[nodiscard]] std::uint16_t free_port();

[[nodiscard]] std::string random_password();

}  // namespace support
