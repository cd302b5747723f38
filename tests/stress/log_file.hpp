#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace stress {

/// One write for each line, so that a killed process leaves only whole lines.
class log_file {
public:
    explicit log_file(const std::string& path)
        : file_{open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)} {
        if (file_ < 0) throw std::runtime_error{"cannot write " + path};
    }
    log_file(const log_file&) = delete;
    log_file& operator=(const log_file&) = delete;
    ~log_file() { close(file_); }

    template <typename... Parts>
    void line(const Parts&... parts) {
        std::string text;
        (append(text, parts), ...);
        text.back() = '\n';
        if (write(file_, text.data(), text.size()) < 0) std::abort();
    }

private:
    static void append(std::string& text, const std::string& part) { text += part + ' '; }
    static void append(std::string& text, const char* part) { text += std::string{part} + ' '; }
    template <typename Number>
    static void append(std::string& text, Number part) {
        using std::to_string;
        text += to_string(part) + ' ';
    }

    int file_;
};

}  // namespace stress
