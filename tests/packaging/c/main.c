/* Links, runs, and gets an error that it can read. */
#include <kaiju.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  kaiju_error* error = NULL;
  kaiju_model* model = NULL;
  const kaiju_status status = kaiju_model_load(NULL, "/nowhere/model.safetensors", NULL, NULL, NULL, &model, &error);
  const int good = status == KAIJU_IO && strstr(kaiju_error_message(error), "/nowhere/model.safetensors") != NULL &&
                   kaiju_version() == KAIJU_VERSION;
  printf("kaiju %s: %s\n", kaiju_version_string(), kaiju_error_message(error));
  kaiju_error_destroy(error);
  return good ? 0 : 1;
}
