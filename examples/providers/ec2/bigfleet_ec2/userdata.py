"""What an instance is started with: the agent and a unit that keeps it running. Nothing in it is secret."""

from importlib import resources

from bigfleet_ec2.config import Config

_USER_DATA = """\
#!/bin/bash
set -eu
cat >/etc/bigfleet-agent.env <<'END'
BIGFLEET_MACHINE={machine}
BIGFLEET_MAILBOX={mailbox}
BIGFLEET_EVERY={every:g}
AWS_DEFAULT_REGION={region}
END
cat >/usr/local/sbin/bigfleet-agent <<'END'
{agent}
END
chmod 755 /usr/local/sbin/bigfleet-agent
cat >/etc/systemd/system/bigfleet-agent.service <<'END'
[Unit]
After=network-online.target
Wants=network-online.target
[Service]
EnvironmentFile=/etc/bigfleet-agent.env
ExecStart=/usr/local/sbin/bigfleet-agent
Restart=always
RestartSec=5
# What a bootstrap blob starts belongs to the node, and outlives the agent.
KillMode=process
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --now bigfleet-agent.service
"""


def user_data(config: Config, machine: str) -> str:
    """The script that cloud-init runs at the first boot."""
    guest = config.guest
    return _USER_DATA.format(
        machine=machine,
        mailbox=f"{guest.bucket}/{guest.prefix}{guest.role_id}",
        every=config.poll_seconds,
        region=config.region,
        agent=resources.files(__package__).joinpath("agent.sh").read_text().rstrip(),
    )
