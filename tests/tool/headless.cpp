// A process whose first thread ends while another goes on: /proc shows it as a zombie, but it still
// writes.

#include <pthread.h>

#include <chrono>
#include <fstream>
#include <thread>

int main(int, char** arguments) {
    std::thread{[log = arguments[1]] {
        std::ofstream out{log, std::ios::app};
        for (;;) {
            out << '.' << std::flush;
            std::this_thread::sleep_for(std::chrono::milliseconds{5});
        }
    }}.detach();
    pthread_exit(nullptr);
}
