/* ONNX Runtime 1.31 carries Microsoft's event collector. As soon as its environment is made, before an application
 * can switch it off through the API, it writes a device id and a database of events below the user's cache folder
 * and a session file to the folder for temporary files. It asks this variable first. Setting a variable is unsafe in
 * Rust, and starting the program anew with it would load libtorch twice; here no thread has been started yet. */
#include <stdlib.h>

__attribute__((constructor)) static void disable_telemetry(void) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 1);
}
