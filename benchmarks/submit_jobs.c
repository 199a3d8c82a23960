/* Submits jobs that begin tomorrow as fast as a slurmctld takes them; sbatch is too slow to tell.
 *
 * usage: submit_jobs SCRIPT N_PROCESSES N_EACH UID NEW   (SLURM_CONF names the Slurm)
 * Prints the seconds from the first submission to the last answer. With NEW = 1 each script ends
 * in a comment of its own, with NEW = 2 in a load of its own. Build: cc -O2 -o submit_jobs submit_jobs.c -lslurm (Debian: libslurm-dev)
 */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
#define GPUS "gres/gpu:a100:1"
#else
#define GPUS "gres:gpu:a100:1"
#endif

extern char **environ;

static char *read_file(const char *path)
{
    static char text[5000000];
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    text[fread(text, 1, sizeof text - 64, file)] = 0;
    fclose(file);
    return text;
}

static int submit_all(char *script, int n_jobs, uid_t uid, int new)
{
    char *end = script + strlen(script);
    uint32_t n_env = 0;
    while (environ[n_env])
        n_env++;
    if (setgid(uid) || setuid(uid))
        return 1;
    for (int i = 0; i < n_jobs; i++) {
        job_desc_msg_t job;
        submit_response_msg_t *answer = NULL;
        slurm_init_job_desc_msg(&job);
        if (new == 1)
            snprintf(end, 64, "# %d %d\n", (int)getpid(), i);
        if (new == 2) /* a prompt of 500 to 1499 tokens, an answer of 100 to 499 */
            snprintf(end, 64, "#OMNIPILOT isl=%d osl=%d\n", 500 + i % 1000,
                     100 + (int)(getpid() + i / 1000) % 400);
        job.script = script;
        job.name = "benchmark";
        job.environment = environ;
        job.env_size = n_env;
        job.user_id = job.group_id = uid;
        job.work_dir = "/tmp";
        job.std_out = job.std_err = "/dev/null";
        job.min_nodes = job.max_nodes = 1;
        job.begin_time = time(NULL) + 86400; /* held jobs would not be decided on */
        job.tres_per_node = GPUS;
        if (slurm_submit_batch_job(&job, &answer)) {
            fprintf(stderr, "submit_jobs: %s\n", slurm_strerror(slurm_get_errno()));
            return 1;
        }
        slurm_free_submit_response_response_msg(answer);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct timespec began, ended;
    int status, failed = 0;
    char *script = argc == 6 ? read_file(argv[1]) : NULL;
    if (!script) {
        fprintf(stderr, "usage: submit_jobs SCRIPT N_PROCESSES N_EACH UID NEW\n");
        return 2;
    }
    slurm_init(NULL);
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int i = 0; i < atoi(argv[2]); i++)
        if (fork() == 0)
            _exit(submit_all(script, atoi(argv[3]), atoi(argv[4]), atoi(argv[5])));
    while (wait(&status) > 0)
        failed |= status;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.6f\n", (ended.tv_sec - began.tv_sec) + (ended.tv_nsec - began.tv_nsec) / 1e9);
    return failed ? 1 : 0;
}
